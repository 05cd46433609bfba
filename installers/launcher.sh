#!/bin/sh
# Starts a program of its own bundle, from wherever the bundle was installed. It sets no variable:
# that would leak into the program's children (LD_LIBRARY_PATH, for one; a loader takes an option).
# The command at the end is filled in when the bundle is assembled.
set -eu

# Prints the path of this script with every symlink on the way to it followed (readlink is not
# everywhere; `ls -ld` is, and prints "... -> target" for a link).
itself() {
    path=$1
    case $path in
    */*) ;;
    *) path=$(command -v -- "$path") ;;
    esac
    while [ -h "$path" ]; do
        link=$(ls -ld -- "$path")
        link=${link#*" -> "}
        case $link in
        /*) path=$link ;;
        *) path=${path%/*}/$link ;;
        esac
    done
    printf '%s\n' "$path"
}

main() {
    path=$(itself "$0")
    # shellcheck disable=SC2034 # the command names it
    root=$(CDPATH='' cd -- "${path%/*}/.." && pwd -P)
    exec @command@ "$@"
}

main "$@"
