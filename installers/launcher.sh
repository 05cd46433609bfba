#!/bin/sh
# Starts a program with the C++ libraries of its own bundle, from wherever the bundle was installed.
# The loader's option does what LD_LIBRARY_PATH would, without leaking into the program's children.
# The words between @ signs are filled in when the bundle is assembled.
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
    root=$(CDPATH='' cd -- "${path%/*}/.." && pwd -P)
    exec '@loader@' --library-path "$root/@libraries@" "$root/@program@" "$@"
}

main "$@"
