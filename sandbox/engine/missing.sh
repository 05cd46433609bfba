#!/bin/sh
# Says what the runtime could not find of a command it refused to start: "cwd" or "command".
#   $1 folder   $2 word the command was called by   (PATH is the command's own)
set -u

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

main() {
	if ! cd "$1" 2>/dev/null; then
		echo cwd
		return
	fi
	case $2 in
	*/*) [ -e "$2" ] || echo command ;;
	*) in_path "$2" || echo command ;;
	esac
}

main "$@"
