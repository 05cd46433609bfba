#!/bin/sh
# Joins standard input and output with the pipes of one connection; says on standard error when
# the connection's peer has said all.
#   $1 the connection's number
set -u

main() {
    cd /tmp || exit 1
    exec 3<&0
    cat <&3 >"$1.in" 2>/dev/null &
    exec 3<&-
    cat "$1.out"
    echo end >&2
    wait
}

main "$@"
