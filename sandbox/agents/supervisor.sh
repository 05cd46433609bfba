#!/bin/sh
# Runs one command inside a sandbox under a deadline and leaves a receipt of how it ended.
#
#   supervisor.sh --dir DIR --cwd DIR --tag NAME=VALUE --deadline S --grace S [--exclusive]
#                 [--variables N] -- COMMAND [ARGUMENT ...]
#   supervisor.sh --recover --dir DIR --tag NAME=VALUE --grace S [--exclusive]
#
# The command gets its own session and process group, exactly the environment given (and the tag),
# stdin from /dev/null, its output in files. The environment comes as SUPERVISED_1 to SUPERVISED_N,
# each NAME=VALUE: what stands in arguments is in every process list, and a key may be among it. DIR is private to the session and holds:
#
#   supervisor     pid of this script and the centisecond it began
#   baseline       processes that were there before the launch (pid:start)
#   runner         pid:start of the runner, which starts the command and waits for it
#   claim/         made by whoever decides about the launch: the runner just before it launches, or
#                  anybody (a stopper, this script) who wants that nothing is ever launched
#   launched       pid of the command, written by the command's own process just before it becomes
#                  the command: empty or missing means that it never did
#   ended          the command's wait status (128 + n for signal n), and the centiseconds it began and
#                  ended at
#   stdout stderr  what the command wrote
#   stop           anybody may make it: please stop
#   ballast        bytes given up for the receipt when the command filled the disk
#   receipt.json   the last word, complete or absent
#
# The supervisor watches; the runner, in a session of its own, has the command in its foreground. A
# background command of a shell would ignore SIGINT and SIGQUIT, and so would every tool below it;
# "setsid setsid" is how a shell without job control gets a process of its own without "&".
#
# A command that ends by itself leaves its detached children alone; they are listed. A forced stop
# (deadline, stop file, HUP, INT or TERM to the supervisor) sends TERM, waits for the grace, and
# kills the session, everything that carries the tag, all their descendants and, with --exclusive,
# everything that was not there before, except what the engine itself started meanwhile. --recover
# does the same after a supervisor that was killed. Needs sh, /proc, env, setsid, sleep, mkdir, mv,
# cut, tr and sed.

set -eu
unset CDPATH
LC_ALL=C
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
IFS=' 	
'

KILL_WAIT=500    # centiseconds that killed processes get to disappear
RUNNER_WAIT=2000 # centiseconds that the runner gets to come

say() { printf 'supervisor: %s\n' "$*" >&2; }
refuse() {
    say "$*"
    exit 64
}

# --- time, without a fork and without the wall clock ----------------------------------------------

clock() { # sets $now, in centiseconds since the machine started
    read -r uptime _ </proc/uptime
    now=$((${uptime%.*} * 100 + 1${uptime#*.} - 100))
}

nap() { # SECONDS; a sleep that knows no fractions sleeps for a second
    sleep "$1" 2>/dev/null || sleep 1
}

centiseconds() { # SECONDS: sets $centi
    case $1 in
    '' | *[!0-9.]* | *.*.* | .* | *. | 0[0-9]*) refuse "not a number of seconds: $1" ;;
    *.*) centi=${1#*.}00 centi=1${centi%"${centi#??}"} centi=$((${1%.*} * 100 + centi - 100)) ;;
    *) centi=$(($1 * 100)) ;;
    esac
}

# --- processes ------------------------------------------------------------------------------------

look() { # PID: sets $state $parent $group $session $start; fails when it is gone
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
    # shellcheck disable=SC2086 # numbers and one letter
    set -- ${line##*\) }
    state=$1 parent=$2 group=$3 session=$4 start=${20}
}

lives() { # PID START: whether this very process still runs
    look "$1" && [ "$start" = "$2" ] && [ "$state" != Z ] && [ "$state" != X ]
}

tagged() { # PID: whether its environment, where we may read it, carries the tag
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in *"$tag"*) return 0 ;; esac
    done 2>/dev/null <"/proc/$1/environ"
    return 1
}

remember_baseline() {
    before=' '
    for entry in /proc/[0-9]*; do
        look "${entry#/proc/}" && before="$before${entry#/proc/}:$start "
    done
    printf '%s\n' "$before" >"$dir/baseline"
}

scan() { # sets $alive to the living processes of the session; those once seen stay known
    mine=' ' engine=' ' rest=
    for entry in /proc/[0-9]*; do
        pid=${entry#/proc/}
        case $pid in 1 | "$self" | "$main" | "$runner") continue ;; esac
        look "$pid" || continue
        case $state in Z | X) continue ;; esac
        if is_member; then
            mine="$mine$pid "
        elif [ "$parent" = 0 ]; then
            engine="$engine$pid "
        else
            rest="$rest $pid:$start:$parent"
        fi
    done
    add_families
    [ -z "$exclusive" ] || add_strangers
    alive=${mine# }
    for pid in $alive; do
        look "$pid" || continue
        case $known in *" $pid:$start "*) ;; *) known="$known$pid:$start " ;; esac
    done
}

is_member() {
    case $known in *" $pid:$start "*) return 0 ;; esac
    case $before in *" $pid:$start "*) return 1 ;; esac
    [ -n "$child" ] && { [ "$group" = "$child" ] || [ "$session" = "$child" ]; } && return 0
    [ -z "$exclusive" ] && tagged "$pid"
}

add_families() { # children join their parents, until no more do
    grew=yes
    while [ -n "$grew" ]; do
        grew='' left=''
        for row in $rest; do
            pid=${row%%:*} parent=${row##*:}
            case $mine in *" $parent "*)
                mine="$mine$pid " grew=yes
                continue
                ;;
            esac
            case $engine in *" $parent "*)
                engine="$engine$pid " grew=yes
                continue
                ;;
            esac
            left="$left $row"
        done
        rest=$left
    done
}

add_strangers() { # what was not there before and hangs from no command of the engine
    for row in $rest; do
        case $before in *" ${row%:*} "*) ;; *) mine="$mine${row%%:*} " ;; esac
    done
}

signal() { # NAME: to the group, which no fork escapes, and to all that the scan found
    [ -z "$child" ] || kill -s "$1" -- "-$child" 2>/dev/null || :
    for pid in $alive; do
        kill -s "$1" "$pid" 2>/dev/null || :
    done
}

# --- stopping and the receipt ---------------------------------------------------------------------

force() { # TERM, the grace, KILL: sets $alive to what is left
    scan
    signal TERM
    signal CONT
    clock && limit=$((now + grace))
    while [ -n "$alive" ] && clock && [ "$now" -lt "$limit" ]; do
        nap 0.05
        scan
    done
    destroy
}

destroy() { # stops first, so that nothing forks between the look and the kill; needs no fork
    clock && limit=$((now + KILL_WAIT))
    while [ -n "$alive" ] && clock && [ "$now" -lt "$limit" ]; do
        signal STOP
        scan
        signal KILL
        scan
    done
}

read_child() { # sets $child, and fails when the command was never launched
    child=
    { read -r child <"$dir/launched"; } 2>/dev/null || :
    [ -n "$child" ]
}

read_runner() { # sets $runner, and fails when there is none yet
    { read -r runner <"$dir/runner"; } 2>/dev/null || return 1
    runner_start=${runner#*:} runner=${runner%:*}
}

runner_lives() { [ -n "$runner" ] && lives "$runner" "$runner_start"; }

await_ended() { # sets $return_code from the runner's note, which follows the command's death at once
    clock && limit=$((now + 200))
    until has_ended; do
        runner_lives && clock && [ "$now" -lt "$limit" ] || return 0
        nap 0.01
    done
}

has_ended() { # sets $return_code; a blank note is there from the start, so that it always fits
    { read -r return_code began_at ended_at <"$dir/ended"; } 2>/dev/null || :
    [ -n "$return_code" ] && return 0
    return_code=null
    return 1
}

json_string() { # TEXT: control characters become spaces; plain text needs no fork
    case $1 in
    *[!\ -\~]* | *[\"\\]*)
        printf '"'
        printf '%s' "$1" | tr '\001-\037\177' ' ' | sed 's/[\"]/\\&/g'
        printf '"'
        ;;
    *) printf '"%s"' "$1" ;;
    esac
}

command_of() { # PID: its command line, or its name in brackets
    text=$(tr '\000' ' ' <"/proc/$1/cmdline" 2>/dev/null | cut -c 1-200) || :
    [ -n "$text" ] || text="[$(cat "/proc/$1/comm" 2>/dev/null || printf gone)]"
    json_string "${text% }"
}

survivors() {
    comma=
    for pid in $alive; do
        printf '%s{"pid": %s, "command": ' "$comma" "$pid"
        command_of "$pid"
        printf '}'
        comma=', '
    done
}

conclude() { # LAUNCHED RETURN_CODE TIMED_OUT STOPPED CONFIRMED ERROR(empty: none)
    elapsed=$((finished - started))
    read -r host </proc/sys/kernel/hostname || host=unknown
    true >"$dir/ballast"
    {
        printf '{"cleanup_confirmed": %s, "launched": %s, "return_code": %s, ' "$5" "$1" "$2"
        printf '"timed_out": %s, "stopped": %s, "error": ' "$3" "$4"
        if [ -n "$6" ]; then json_string "$6"; else printf null; fi
        printf ', "survivors": ['
        survivors
        printf '], "hostname": '
        json_string "$host"
        printf ', "pid": %s, ' "$main"
        printf '"duration_s": %d.%02d' $((elapsed / 100)) $((elapsed % 100))
        if [ -n "$stopping" ] && [ "$finished" -ge "$stopping" ]; then
            elapsed=$((finished - stopping))
            printf ', "ending_s": %d.%02d' $((elapsed / 100)) $((elapsed % 100))
        fi
        printf '}\n'
    } >"$dir/receipt.tmp" || return 1
    mv -f "$dir/receipt.tmp" "$dir/receipt.json"
}

conclude_stop() { # TIMED_OUT STOPPED ERROR: after force
    clock && finished=$now
    await_ended
    read_child && launched=true || launched=false
    if [ -z "$alive" ]; then
        conclude "$launched" "$return_code" "$1" "$2" true "$3"
    else
        conclude "$launched" "$return_code" "$1" "$2" false "$3"
    fi
}

# --- the runner -----------------------------------------------------------------------------------

run() { # becomes a session of its own, and waits for the command
    read -r self _ </proc/self/stat
    start=$(look "$self" && echo "$start") # an emulator tells a process another start of itself
    printf '%s:%s\n' "$self" "$start" >"$dir/runner"
    mkdir "$dir/claim" 2>/dev/null || return 0
    clock && began_at=$now
    (launch "$@") </dev/null >"$dir/stdout" 2>"$dir/stderr" && code=0 || code=$?
    clock
    printf '%-3s %12s %12s\n' "$code" "$began_at" "$now" 1<>"$dir/ended"
    { read -r main _ <"$dir/supervisor" && kill -s USR1 "$main"; } 2>/dev/null || :
}

launch() { # runs in a process of its own and becomes the command
    cd "$cwd" || exit 125
    read -r self _ </proc/self/stat
    if ! printf '%s\n' "$self" >"$dir/launched"; then
        : >"$dir/launched"
        exit 125
    fi
    count=$variables
    while [ "$count" -gt 0 ]; do
        eval "set -- \"\$SUPERVISED_$count\" \"\$@\""
        unset "SUPERVISED_$count"
        count=$((count - 1))
    done
    exec setsid env -i "$tag" "$@" # for the instant until env becomes the command
}

# --- the supervisor -------------------------------------------------------------------------------

supervise() {
    if [ -e "$dir/receipt.json" ] || [ -e "$dir/supervisor" ]; then
        refuse "$dir was used before"
    fi
    trap 'signalled=yes' HUP INT TERM
    trap : USR1 # the runner's word that it has written down the end
    printf '%s %s\n' "$main" "$started" >"$dir/supervisor"
    printf '%65536s' '' >"$dir/ballast"
    printf '%29s\n' '' >"$dir/ended"
    for tool in env setsid sleep mkdir mv; do
        if ! command -v "$tool" >/dev/null; then
            conclude false null false false true "the image has no $tool"
            return
        fi
    done
    if [ -e "$dir/claim" ]; then
        conclude false null false true true ''
        return
    fi
    remember_baseline
    trap fallen EXIT
    setsid setsid sh "$0" --runner --dir "$dir" --cwd "$cwd" --tag "$tag" --grace 0 \
        --variables "$variables" -- "$@" \
        </dev/null >/dev/null 2>"$dir/runner.log"
    watch
    clock && finished=$now
    if [ "$reason" = ended ]; then
        end_naturally
    else
        end_by_force
    fi
    trap - EXIT
}

watch() { # until there is a $reason to go on; a trapped signal ends a wait, but no sleep
    sleep 0.01 2>/dev/null && pause=0.1 || pause=1
    until reason_to_end; do
        sleep "$pause" >/dev/null 2>&1 &
        sleeper=$!
        wait "$sleeper" || :
    done
    [ -z "$sleeper" ] || { kill "$sleeper" && wait "$sleeper"; } 2>/dev/null || :
}

reason_to_end() { # sets $reason
    reason=
    clock
    if has_ended; then
        reason=ended
    elif [ -n "$signalled" ] || [ -e "$dir/stop" ]; then
        reason=stop
    elif [ "$now" -ge $((started + deadline)) ]; then
        reason=deadline
    elif [ -n "$runner" ]; then
        runner_lives || has_ended || reason=lost
    elif ! read_runner && [ "$now" -ge $((started + RUNNER_WAIT)) ]; then
        reason=lost
    fi
    [ -n "$reason" ]
}

end_naturally() {
    if read_child; then
        started=$began_at finished=$ended_at
        settle
        conclude true "$return_code" false false true ''
    else
        read -r line <"$dir/stderr" || :
        conclude false null false false true "the command was not started: ${line:-no reason given}"
    fi
}

end_by_force() {
    trap '' HUP INT TERM
    stopping=$now
    [ "$reason" != deadline ] || stopping=$((started + deadline))
    read_runner || :
    mkdir "$dir/claim" 2>/dev/null || await_launched
    force
    conclude_forced
}

conclude_forced() {
    case $reason in
    deadline) conclude_stop true false '' ;;
    stop) conclude_stop false true '' ;;
    lost) conclude_stop false false "the runner was killed or never came: $(cat "$dir/runner.log")" ;;
    *) conclude_stop false false 'no process could be started (is the process limit reached?)' ;;
    esac
}

await_launched() { # whoever has the claim launches at once, or never
    clock && limit=$((now + 1000))
    until read_child || has_ended || ! runner_lives; do
        clock && [ "$now" -lt "$limit" ] || return 0
        nap 0.01
    done
    runner_lives || nap 0.2 # a command on its way to exec shows its tag by then
    read_child || :
}

fallen() { # could not go on, most likely because the sandbox is full of processes
    trap - EXIT
    trap '' HUP INT TERM
    read_child || :
    scan
    destroy
    clock && limit=$((now + 50))
    while clock && [ "$now" -lt "$limit" ]; do :; done # until the dead are gone and we can fork
    conclude_forced
}

settle() { # what is dying with the command is no survivor
    for pause in 0.02 0.04 0.08 0.16; do
        scan
        [ -n "$alive" ] || return 0
        nap "$pause"
    done
    scan
}

recover() {
    [ ! -e "$dir/receipt.json" ] || return 0
    if read -r before 2>/dev/null <"$dir/baseline"; then
        before=" $before "
    else
        exclusive='' before=' ' # nothing was launched yet, and nobody knows who is a stranger
    fi
    read -r main started 2>/dev/null <"$dir/supervisor" || main=$self started=$now
    read_runner || :
    mkdir "$dir/claim" 2>/dev/null || await_launched
    force
    [ -e "$dir/receipt.json" ] || conclude_stop false false 'the supervisor died and left no receipt'
}

main() {
    dir='' cwd='' tag='' deadline='' grace='' exclusive='' mode=supervise variables=0
    while [ $# -gt 0 ]; do
        case $1 in
        --dir) dir=$2 ;;
        --cwd) cwd=$2 ;;
        --tag) tag=$2 ;;
        --deadline) centiseconds "$2" && deadline=$centi ;;
        --variables) variables=$2 ;;
        --grace) centiseconds "$2" && grace=$centi ;;
        --exclusive | --recover | --runner)
            [ "$1" = --exclusive ] && exclusive=yes || mode=${1#--}
            shift
            continue
            ;;
        --) break ;;
        *) refuse "unknown option $1" ;;
        esac
        shift 2
    done
    [ -d "$dir" ] || refuse "no folder $dir"
    [ -n "$tag" ] && [ -n "$grace" ] || refuse 'needs --tag and --grace'
    [ -r /proc/uptime ] && [ -r /proc/self/stat ] || refuse 'needs /proc'
    main=$$ self=$$ runner='' child='' sleeper='' known=' ' before=' ' alive='' signalled='' stopping='' return_code=null
    clock && started=$now finished=$now
    if [ "$mode" = recover ]; then
        recover
        return
    fi
    shift || refuse 'needs -- and a command'
    [ -n "$cwd" ] && [ $# -gt 0 ] || refuse 'needs --cwd and a command'
    case $mode in
    runner) run "$@" ;;
    *)
        [ -n "$deadline" ] || refuse 'needs --deadline'
        supervise "$@"
        ;;
    esac
}

main "$@"
