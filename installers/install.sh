#!/bin/sh
# Turns a bundle into a private prefix: verify, unpack beside it, move, run, print a receipt.
#
#   sh install.sh --bundle FILE|--tree DIR --sha256 HEX --prefix DIR --harness NAME \
#      --version VERSION --platform PLATFORM --version-output TEXT \
#      [--version-compare all|first-line] [--version-checked now|earlier] \
#      [--version-env NAME=VALUE]... [-- VERSION-ARGUMENT...]
#
# With --tree the prefix becomes a link to DIR: that bundle, unpacked and verified by the caller and
# mounted read-only. With "earlier" the caller knows that the program said its version in this very
# image: it is not run, and the receipt says so; only a tree that nobody here can write to may do so.
#
# Needs only sh, tar, a sha256 tool and the everyday file commands. The receipt (JSON, one line) is
# all that goes to standard output. On any failure nothing is left at the prefix, no file of ours is
# left beside it, and the exit code says why:
#   2 usage   3 wrong platform   4 missing tool   5 not the pinned bytes   6 cannot write or unpack
#   7 the program does not start, or is not the pinned version   8 the prefix is taken
set -eu
umask 022
LC_ALL=C
export LC_ALL

readonly NAME=install.sh
readonly newline='
'
work=''   # our temporary sibling of the prefix, while there is one
ours=''   # the prefix, while it is ours to remove
prefix='' # where the bundle goes

say() {
    printf '%s: %s\n' "$NAME" "$*" >&2
}

err() {
    code=$1
    shift
    say "error: $*"
    exit "$code"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

need_cmd() {
    have "$1" || err 4 "this image has no '$1'"
}

# ensure MESSAGE COMMAND...: the command works, or the installation ends.
ensure() {
    message=$1
    shift
    "$@" || err 6 "$message"
}

cleanup() {
    code=$?
    trap - EXIT
    [ -z "$work" ] || rm -rf -- "$work"
    [ -z "$ours" ] || rm -rf -- "$ours"
    exit "$code"
}

# Values end up in JSON and in messages: what would need escaping there is refused.
check_value() {
    case $2 in
    '') err 2 "$1 is missing" ;;
    *[[:cntrl:]]* | *'"'* | *\\*) err 2 "$1 holds a character that is not allowed" ;;
    esac
}

check_word() {
    check_value "$1" "$2"
    case $2 in
    *[!A-Za-z0-9._+-]* | [!A-Za-z0-9]*) err 2 "$1 is not a plain word: $2" ;;
    esac
}

check_variable() {
    check_value --version-env "$1"
    case ${1%%=*} in
    '' | [0-9]* | *[!A-Z0-9_]* | HOME | PATH | TMPDIR) err 2 "--version-env cannot set: $1" ;;
    esac
    case $1 in
    *=?*) ;;
    *) err 2 "--version-env is not NAME=VALUE: $1" ;;
    esac
}

check_prefix() {
    check_value --prefix "$1"
    case $1/ in
    [!/]*) err 2 "--prefix is not absolute: $1" ;;
    *//* | */./* | */../*) err 2 "--prefix is not a plain path: $1" ;;
    esac
}

is_sha256() {
    case $1 in
    *[!0-9a-f]*) return 1 ;;
    esac
    [ "${#1}" -eq 64 ]
}

loader_of() {
    case $1 in
    linux-x64-gnu) echo /lib64/ld-linux-x86-64.so.2 ;;
    linux-x64-musl) echo /lib/ld-musl-x86_64.so.1 ;;
    linux-arm64-gnu) echo /lib/ld-linux-aarch64.so.1 ;;
    linux-arm64-musl) echo /lib/ld-musl-aarch64.so.1 ;;
    *) err 2 "--platform is not one we know: $1" ;;
    esac
}

check_platform() {
    loader=$(loader_of "$1")
    machine=$(uname -m) || err 6 "uname -m failed"
    case $machine in
    x86_64 | amd64) arch=x64 ;;
    aarch64 | arm64) arch=arm64 ;;
    *) arch=$machine ;;
    esac
    case $1 in
    linux-"$arch"-*) ;;
    *) err 3 "the bundle is for $1, this machine is $machine" ;;
    esac
    [ -e "$loader" ] || err 3 "the bundle is for $1, this image has no $loader"
}

# Prints the sha256 of a file, or nothing when the tool failed.
sha256_of() {
    if have sha256sum; then
        sum=$(sha256sum <"$1") || sum=''
    elif have shasum; then
        sum=$(shasum -a 256 <"$1") || sum=''
    else
        sum=$(openssl dgst -sha256 -r <"$1") || sum=''
    fi
    printf '%s\n' "${sum%% *}"
}

verify_bundle() {
    [ -f "$1" ] || err 5 "there is no bundle $1"
    [ -r "$1" ] || err 5 "cannot read the bundle $1"
    found=$(sha256_of "$1")
    is_sha256 "$found" || err 5 "could not hash $1: got '$found'"
    [ "$found" = "$2" ] || err 5 "$1 has sha256 $found, pinned is $2"
}

check_names() {
    while IFS= read -r entry; do
        case /$entry/ in
        //* | */../*) err 5 "the bundle holds an unsafe name: $entry" ;;
        esac
    done <"$1"
}

# Installers that were killed leave siblings named after their process: the dead ones' go.
sweep_siblings() {
    for stale in "$prefix".installing-*; do
        [ -e "$stale" ] || continue
        kill -0 "${stale##*-}" 2>/dev/null || rm -rf -- "$stale" || :
    done
}

make_work() {
    parent=${prefix%/*}
    ensure "cannot make ${parent:-/}" mkdir -p -- "${parent:-/}"
    sweep_siblings
    sibling=$prefix.installing-$$
    ensure "cannot write to ${parent:-/}" mkdir -- "$sibling"
    work=$sibling
    ensure "cannot write to $work" mkdir -- "$work/home"
}

unpack() {
    ensure "cannot write to $work" mkdir -- "$work/tree"
    ensure "cannot list the bundle" tar -tf "$1" >"$work/names"
    check_names "$work/names"
    ensure "cannot unpack the bundle into $work (disk full?)" tar -xof "$1" -C "$work/tree"
    [ -x "$work/tree/bin/$2" ] || err 5 "the bundle has no program bin/$2"
    printf '%s\n' "$3" >"$work/tree/.bundle-sha256" || err 6 "cannot write to $work"
}

move() {
    [ ! -e "$prefix" ] && [ ! -h "$prefix" ] || err 8 "$prefix appeared meanwhile"
    ours=$prefix
    ensure "cannot move to $prefix" mv -- "$work/tree" "$prefix"
}

# check_version PROGRAM EXPECTED ARGUMENT...: its whole standard output, with nothing inherited and
# what --version-env says (one a line); with "first-line" only that, for programs that name their
# folders below it.
check_version() {
    program=$1
    expected=$2
    shift 2
    code=0
    printed=$(
        set -f
        IFS=$newline
        # shellcheck disable=SC2086 # one word a line
        cd / && exec env -i HOME="$work/home" TMPDIR="$work/home" \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin $version_env \
            "$program" "$@" </dev/null 2>"$work/errors"
    ) || code=$?
    [ "$version_compare" = all ] || printed=${printed%%"$newline"*}
    if [ "$code" -ne 0 ] || [ "$printed" != "$expected" ]; then
        while IFS= read -r line; do say "| $line"; done <"$work/errors"
        err 7 "$program $* printed '$printed' with exit code $code, pinned is '$expected'"
    fi
}

# A tree is taken as verified only where nothing in this sandbox can have changed it. (test -w says
# for root in some shells what the modes say, not what the mount does.)
check_tree() {
    [ -d "$1" ] || err 5 "there is no tree $1"
    recorded=''
    [ ! -f "$1/.bundle-sha256" ] || IFS= read -r recorded <"$1/.bundle-sha256" || :
    [ "$recorded" = "$2" ] || err 5 "the tree $1 is of bundle '$recorded', pinned is $2"
    probe=$1/.writable-$$
    if (: >"$probe") 2>/dev/null; then
        rm -f -- "$probe"
        err 5 "the tree $1 can be written to: it must be mounted read-only"
    fi
    [ -x "$1/bin/$3" ] || err 5 "the bundle has no program bin/$3"
}

# link TREE: one call makes the prefix, so that nobody ever sees half of it.
link() {
    ours=$prefix
    ensure "cannot link $prefix" ln -s -- "$1" "$prefix"
}

# The prefix exists: ours with the same bundle, in the same way, or not to be touched.
check_taken() {
    if [ "$way" = mount ]; then
        [ -h "$prefix" ] && [ "$(cd -P -- "$prefix" && pwd)" = "$(cd -P -- "$tree" && pwd)" ] ||
            err 8 "$prefix exists and is no link to $tree"
    else
        [ ! -h "$prefix" ] || err 8 "$prefix exists and is a link"
    fi
    [ -f "$prefix/.bundle-sha256" ] || err 8 "$prefix exists and is not an installed bundle"
    recorded=''
    IFS= read -r recorded <"$prefix/.bundle-sha256" || :
    [ "$recorded" = "$1" ] || err 8 "$prefix holds another bundle: $recorded"
    ours=$prefix
}

receipt() {
    printf '{"harness":"%s","version":"%s","platform":"%s","bundle_sha256":"%s",' "$1" "$2" "$3" "$4"
    printf '"prefix":"%s","version_output":"%s","already_installed":%s,' "$prefix" "$5" "$6"
    printf '"way":"%s","version_checked":"%s"}\n' "$7" "$8"
}

main() {
    bundle='' tree='' sha256='' harness='' version='' platform='' version_output=''
    version_compare=all version_checked=now version_env=''
    while [ $# -gt 0 ]; do
        option=$1
        shift
        [ "$option" != -- ] || break
        [ $# -gt 0 ] || err 2 "$option needs a value"
        case $option in
        --bundle) bundle=$1 ;;
        --tree) tree=$1 ;;
        --sha256) sha256=$1 ;;
        --prefix) prefix=$1 ;;
        --harness) harness=$1 ;;
        --version) version=$1 ;;
        --platform) platform=$1 ;;
        --version-output) version_output=$1 ;;
        --version-compare) version_compare=$1 ;;
        --version-checked) version_checked=$1 ;;
        --version-env)
            check_variable "$1"
            version_env=$version_env$1$newline
            ;;
        *) err 2 "unknown option $option" ;;
        esac
        shift
    done
    [ $# -gt 0 ] || set -- --version
    case $bundle:$tree in
    ?*:?*) err 2 "--bundle and --tree exclude each other" ;;
    :?*) way=mount && check_value --tree "$tree" ;;
    *) way=copy && check_value --bundle "$bundle" ;;
    esac
    check_prefix "$prefix"
    check_word --harness "$harness"
    check_word --version "$version"
    check_word --platform "$platform"
    check_value --version-output "$version_output"
    case $version_compare in
    all | first-line) ;;
    *) err 2 "--version-compare is all or first-line, not $version_compare" ;;
    esac
    case $version_checked:$way in
    now:* | earlier:mount) ;;
    *) err 2 "--version-checked is now, or with --tree earlier, not $version_checked" ;;
    esac
    is_sha256 "$sha256" || err 2 "--sha256 is not 64 lower-case hex digits"
    for command in uname env mkdir rm; do need_cmd "$command"; done
    if [ "$way" = mount ]; then
        need_cmd ln
    else
        for command in mv tar; do need_cmd "$command"; done
        have sha256sum || have shasum || have openssl ||
            err 4 "this image has no sha256sum, shasum or openssl: nothing can be verified"
    fi
    check_platform "$platform"

    already=false
    trap cleanup EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    [ "$way" = copy ] || check_tree "$tree" "$sha256" "$harness"
    if [ -e "$prefix" ] || [ -h "$prefix" ]; then
        check_taken "$sha256"
        already=true
        make_work
        say "$prefix already holds this bundle"
    elif [ "$way" = mount ]; then
        make_work
        link "$tree"
    else
        verify_bundle "$bundle" "$sha256"
        make_work
        unpack "$bundle" "$harness" "$sha256"
        move
    fi
    [ "$version_checked" = earlier ] || check_version "$prefix/bin/$harness" "$version_output" "$@"
    receipt "$harness" "$version" "$platform" "$sha256" "$version_output" "$already" "$way" \
        "$version_checked"
    ours=''
}

main "$@"
