#!/bin/sh
# Says where an absolute path leads after its symbolic links, in lines: what is there (file,
# folder, other, missing), its path, the deepest part of that which exists, then the mounts.
#   $1 path
set -u

follow() { # PATH: sets path to it without a link as its last part
    path=$1
    turn=0
    while [ -L "$path" ] && [ "$turn" -lt 40 ]; do
        target=$(readlink "$path") || return 1
        case $target in
        /*) path=$target ;;
        *) path=${path%/*}/$target ;;
        esac
        turn=$((turn + 1))
    done
}

main() {
    follow "$1" || exit 1
    rest=
    while [ "$path" != / ] && [ -n "$path" ] && [ ! -d "$path" ]; do
        rest=/${path##*/}$rest
        path=${path%/*}
    done
    real=$(cd "${path:-/}" && pwd -P) || exit 1
    existing=$real
    real=${real%/}$rest
    if [ -e "${real:-/}" ]; then
        existing=${real:-/}
    fi
    if [ -f "${real:-/}" ]; then
        kind='file'
    elif [ -d "${real:-/}" ]; then
        kind=folder
    elif [ -e "$real" ]; then
        kind=other
    else
        kind=missing
    fi
    printf '%s\n%s\n%s\n' "$kind" "${real:-/}" "$existing"
    cat /proc/self/mountinfo
}

main "$@"
