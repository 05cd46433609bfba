#!/bin/sh
# Lists all processes of the container but this one, and the numbers of its control groups.
# One line a fact: P pid, S stat, U uid, C command line, for each process; M name value.
# Blanks inside a fact: newlines become blanks, the NULs of a command line become \037.
set -u

flat() { # FILE FROM TO
    tr "$2" "$3" <"$1" 2>/dev/null
    printf '\n'
}

one_process() { # PID
    uid=
    while read -r name _ value _; do
        if [ "$name" = Uid: ]; then
            uid=$value
        fi
    done 2>/dev/null <"/proc/$1/status"
    [ -n "$uid" ] || return 0
    printf 'P %s\nU %s\nS ' "$1" "$uid"
    flat "/proc/$1/stat" '\n' ' '
    printf 'C '
    flat "/proc/$1/cmdline" '\000\n' '\037 '
}

numbers() { # FOLDER FILE...
    folder=$1
    shift
    for file in "$@"; do
        if [ -r "$folder/$file" ]; then
            while read -r name value; do
                printf 'M %s %s %s\n' "$file" "$name" "$value"
            done <"$folder/$file"
        fi
    done
}

main() {
    for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        if [ "$pid" != "$$" ] && [ -r "$folder/status" ]; then
            one_process "$pid"
        fi
    done
    numbers /sys/fs/cgroup cpu.stat memory.peak memory.events
    numbers /sys/fs/cgroup/memory memory.oom_control memory.max_usage_in_bytes
    numbers /sys/fs/cgroup/cpuacct cpuacct.usage
}

main "$@"
