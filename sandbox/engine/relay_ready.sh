#!/bin/sh
# Waits until something listens on a TCP port; fails after 5 s.
#   $1 the port in four hexadecimal digits
set -u

main() {
    turn=0
    until grep -q ":$1 0*:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null; do
        turn=$((turn + 1))
        [ "$turn" -lt 100 ] || exit 1
        sleep 0.05
    done
}

main "$@"
