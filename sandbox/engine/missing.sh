#!/bin/sh
# Says what is missing of a command that the runtime refused to start; nothing when all is there.
#   user NAME[:GROUP]     prints "user" or "group"
#   file FOLDER WORD      prints "folder" or "command"   (PATH is the command's own)
set -u

in_table() { # FILE NAME
    case $2 in
    '' | *[!0-9]*) ;;
    *) return 0 ;; # a number needs no entry
    esac
    while IFS=: read -r name _; do
        [ "$name" != "$2" ] || return 0
    done 2>/dev/null <"$1"
    return 1
}

in_path() { # WORD
    rest=$PATH:
    while [ -n "$rest" ]; do
        folder=${rest%%:*}
        rest=${rest#*:}
        if [ -f "${folder:-.}/$1" ] && [ -x "${folder:-.}/$1" ]; then
            return 0
        fi
    done
    return 1
}

missing_user() { # NAME[:GROUP]
    in_table /etc/passwd "${1%%:*}" || {
        echo user
        return
    }
    case $1 in
    *:*) in_table /etc/group "${1#*:}" || echo group ;;
    esac
}

missing_file() { # FOLDER WORD
    if ! cd "$1" 2>/dev/null; then
        echo folder
        return
    fi
    case $2 in
    */*) [ -e "$2" ] || echo command ;;
    *) in_path "$2" || echo command ;;
    esac
}

main() {
    case $1 in
    user) missing_user "$2" ;;
    file) missing_file "$2" "$3" ;;
    esac
}

main "$@"
