#!/bin/sh
# Says what an image is to a command run in it: one "name=value" a line, some names repeated.
# Needs nothing but a POSIX sh; uses other tools only where they are there.
set -u

TOOLS="apk apt-get awk bash busybox bzip2 cat chmod chown cp curl dash dpkg env find flock gcc getconf git
grep gunzip gzip head id kill ldd less ln make mkdir mktemp mv node npm od openssl perl pgrep pip pip3
pkill ps python python3 readlink realpath rm rpm sed setsid sha256sum sh shasum sleep sort ssh stat
stdbuf su sudo tail tar tee timeout tmux touch tr uname unzip vi wget which xargs xz zstd"
PLACES="/ /bin /dev/shm /etc /home /opt /root /run /srv /tmp /usr/local /usr/local/bin /var/tmp /workspace"
CA_FILES="/etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem
/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/ssl/cert.pem"

fact() { # NAME VALUE
    printf '%s=%s\n' "$1" "$2"
}

has() { # TOOL
    command -v "$1" >/dev/null 2>&1
}

ids() {
    while read -r name _ value _; do
        case $name in
        Uid:) fact uid "$value" && uid=$value ;;
        Gid:) fact gid "$value" && break ;;
        esac
    done </proc/$$/status
    if [ -r /etc/passwd ]; then
        while IFS=: read -r name _ number _ _ home _; do
            if [ "$number" = "$uid" ]; then
                fact user "$name"
                fact passwd_home "$home"
                break
            fi
        done </etc/passwd
    fi
    fact home "${HOME-}"
    fact workdir "$(pwd -P)"
    fact path "${PATH-}"
}

shell() {
    if has readlink; then
        fact sh_exe "$(readlink /proc/$$/exe)"
    fi
    if [ -n "${BASH_VERSION-}" ]; then
        fact sh_bash "$BASH_VERSION"
    fi
}

musl_version() { # of what its loader says on standard input
    while read -r line; do
        case $line in
        *Version*) fact musl_says "$line" ;;
        esac
    done
}

libc() {
    while read -r _ _ _ _ _ file; do
        case $file in
        */ld-musl-* | */ld-linux* | */libc.so.6 | */libc-2.*) fact mapped "$file" && break ;;
        esac
    done </proc/$$/maps
    glibc=
    if has getconf; then
        glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
        fact getconf "$glibc"
    fi
    for loader in /lib/ld-musl-*.so.1 /lib64/ld-linux*.so.* /lib/ld-linux*.so.* /lib/*-linux-gnu*/ld-linux*.so.*; do
        [ -f "$loader" ] || continue
        fact loader "$loader"
        case $loader in
        */ld-musl-*) "$loader" 2>&1 | musl_version ;;
        *) [ -n "$glibc" ] || fact glibc_says "$("$loader" --version 2>/dev/null | head -n 1)" ;;
        esac
    done
    [ -z "$glibc" ] || return 0
    for library in /lib/*-linux-gnu*/libc.so.6 /lib64/libc.so.6 /usr/lib/libc.so.6; do
        if [ -x "$library" ]; then
            fact glibc_says "$("$library" 2>/dev/null | head -n 1)"
            break
        fi
    done
}

# The folders that the loaders search, whatever the libc: configured ones (formats: ld.so(8), and
# musl's /etc/ld-musl-ARCH.path), then those that are built in.
library_folders() {
    for file in /etc/ld.so.conf /etc/ld.so.conf.d/*.conf /etc/ld-musl-*.path; do
        [ -r "$file" ] || continue
        while IFS=':' read -r one two three; do
            for folder in "$one" "$two" "$three"; do
                case $folder in
                /*) printf '%s\n' "$folder" ;;
                esac
            done
        done <"$file"
    done
    for folder in /lib/*-linux-gnu* /usr/lib/*-linux-gnu* /lib64 /usr/lib64 /lib /usr/local/lib /usr/lib; do
        [ ! -d "$folder" ] || printf '%s\n' "$folder"
    done
}

libraries() {
    library_folders | while read -r folder; do
        for file in "$folder"/lib*.so.*; do
            [ ! -f "$file" ] || fact library "$file"
        done
    done
}

system() {
    if has uname; then
        fact machine "$(uname -m)"
    fi
    while IFS=':' read -r name value; do
        case $name in
        flags*) fact cpu_flags "$value" && break ;;
        esac
    done </proc/cpuinfo
    if [ -r /etc/os-release ]; then
        while IFS='=' read -r name value; do
            case $name in
            ID | VERSION_ID) fact "os_$name" "$value" ;;
            esac
        done </etc/os-release
    fi
    for file in $CA_FILES; do
        if [ -s "$file" ]; then
            fact ca_file "$file"
            break
        fi
    done
}

tools() {
    IFS_BEFORE=$IFS
    IFS=:
    # shellcheck disable=SC2086 # split at the colons
    set -- $PATH
    IFS=$IFS_BEFORE
    for tool in $TOOLS; do
        for folder in "$@"; do
            if [ -f "${folder:-.}/$tool" ] && [ -x "${folder:-.}/$tool" ]; then
                fact tool "$tool ${folder:-.}/$tool"
                break
            fi
        done
    done
}

places() {
    for place in $PLACES "${HOME-}" "$(pwd -P)"; do
        if [ -n "$place" ] && [ -d "$place" ] && [ -w "$place" ]; then
            fact writable "$place"
        fi
    done
    # In lines of its own: a shell reads with a system call a byte, thousands of them here.
    if ! { has cat && cat /proc/self/mountinfo; }; then
        while read -r line; do
            printf '%s\n' "$line"
        done </proc/self/mountinfo
    fi
}

main() {
    ids
    shell
    libc
    libraries
    system
    tools
    places
    fact end 1
}

main "$@"
