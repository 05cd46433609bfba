#!/bin/sh
# A shell that is kept in a sandbox and runs commands for the host, one after another.
#
# It reads this text from its standard input (sh -s) and then, at any later time, requests:
#   run ID FOLDER [NAME=VALUE ...] -- COMMAND [ARGUMENT ...]
# Answers, on standard output: "ready" once (and whether it prefers its
# own tools to those in PATH), then for each request "ID yes" just before
# the command begins or "ID no" when it cannot be begun here; its output; and on both streams
# "ID STATUS" (128 + n for signal n), right behind the command's last byte.
#
# A command's process is what the engine's exec would have made of it but for its parent: same
# environment, user, limits and control group, a session of its own, nothing open but its three
# streams. So nothing here may be exported: there are no variables but one, whose name no command's
# environment has.

run() { # ID FOLDER [NAME=VALUE ...] -- COMMAND [ARGUMENT ...]
    (become "$@") </dev/null 2>&3 3>&-
    set -- "$1" "$?"
    printf '%s %s\n' "$1" "$2"
    printf '%s %s\n' "$1" "$2" >&3
}

is_there() { # FILE; a task may remove what it was found to be started through
    [ -z "$1" ] || [ -x "$1" ]
}

become() { # as run; in a process of its own, which becomes the command
    if ! is_there "${sandbox_channel_through##* }" || ! cd -P -- "$2" 2>/dev/null; then
        printf '%s no\n' "$1"
        exit 0
    fi
    printf '%s yes\n' "$1"
    shift 2
    while [ "$1" != -- ]; do
        # shellcheck disable=SC2163 # the word is NAME=VALUE
        export "$1"
        shift
    done
    shift
    unset PWD OLDPWD SHLVL # the last is of busybox
    # shellcheck disable=SC2086 # words, or nothing
    exec $sandbox_channel_through "$@"
}

main() {
    exec 3>&2 2>/dev/null # what a shell says of a killed command is no output of the command
    trap : HUP INT QUIT ALRM TERM USR1 USR2 PIPE
    sandbox_channel_through=$(command -v setsid)
    case $sandbox_channel_through in
    '' | *[!a-z/]*) sandbox_channel_through='' ;;
    esac
    if [ -n "${BASH_VERSION-}" ]; then # its exec adds variables of its own
        sandbox_channel_through="env -u _ -u SHLVL $sandbox_channel_through"
    fi
    if (PATH=/nowhere command -v cat) >/dev/null; then
        printf 'ready, own tools first\n'
    else
        printf 'ready\n'
    fi
}

main
