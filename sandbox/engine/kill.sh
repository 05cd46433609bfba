#!/bin/sh
# Ends a command's processes from inside the container, as the user the command ran as.
#   $1 TAG    the command's value of SANDBOX_EXEC
#   $2 ALONE  1 when no other command ran beside it: then every new process is its own
#   $3 KNOWN  "pid:start ..." of the processes that were there before it
# Prints "left PID" for each process that is still there, or may be the command's.
set -u

user_id() { # PID: sets uid
    uid=
    while read -r name _ value _; do
        if [ "$name" = Uid: ]; then
            uid=$value
        fi
    done 2>/dev/null <"/proc/$1/status"
}

facts() { # PID: sets state, parent, started; fails when it is gone
    text=$(tr '\n' ' ' 2>/dev/null <"/proc/$1/stat") || return 1
    [ -n "$text" ] || return 1
    # shellcheck disable=SC2086 # the fields are words
    set -- ${text##*) }
    state=$1
    parent=$2
    shift 19
    started=$1
}

whose() { # PID: prints ours, other or unclear
    if grep -q "SANDBOX_EXEC=$TAG" "/proc/$1/environ" 2>/dev/null; then
        echo ours
    elif grep -q "SANDBOX_EXEC=" "/proc/$1/environ" 2>/dev/null; then
        echo other
    elif [ "$ALONE" = 1 ]; then
        echo ours
    else
        echo unclear
    fi
}

concerns() { # PID: whether it can be the command's at all
    [ "$1" != 1 ] && [ "$1" != "$$" ] || return 1
    facts "$1" || return 1
    [ "$parent" != "$$" ] || return 1
    case $state in Z | X) return 1 ;; esac
    case " $KNOWN " in *" $1:$started "*) return 1 ;; esac
    user_id "$1"
    # without new privileges a plain user's processes stay that user's
    [ -n "$uid" ] && { [ "$me" = 0 ] || [ "$uid" = "$me" ]; }
}

sweep() { # sets left
    left=
    for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        concerns "$pid" || continue
        case $(whose "$pid") in
        ours)
            kill -9 "$pid" 2>/dev/null
            left="$left $pid"
            ;;
        unclear) left="$left $pid" ;;
        esac
    done
}

main() {
    TAG=$1
    ALONE=$2
    KNOWN=$3
    user_id $$
    me=$uid
    # what was killed takes a moment to go; what is unclear may end, or become another command
    for pause in 0 0 0 0 0 0 0 0 0.05 0.05 0.1 0.1 0.2 0.2 0.3 0.5 end; do
        sweep
        [ -n "$left" ] || break
        case $pause in
        0 | end) ;;
        *) sleep "$pause" 2>/dev/null || sleep 1 ;;
        esac
    done
    for pid in $left; do
        printf 'left %s\n' "$pid"
    done
}

main "$@"
