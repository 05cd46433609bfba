#!/bin/sh
# Makes the project's own virtual environment from installers/requirements.lock.
# Usage: venv.sh FOLDER   Safe to run twice, at once, and after a kill.
set -eu

say() { printf '%s\n' "$*" >&2; }
err() {
    say "venv: $1"
    say "  what to do: $2"
    exit 5
}

# pick_python: the newest interpreter that serves; PYTHON overrides.
pick_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    err "no Python >= 3.11 among: ${PYTHON:-python3 python3.13 python3.12 python3.11}" \
        "install one, or name it: make PYTHON=/path/to/python3.12"
}

# ensure_venv_module: Debian and Ubuntu ship Python without ensurepip.
ensure_venv_module() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return 0
    minor=$("$1" -c 'import sys; print(f"python3.{sys.version_info[1]}-venv")')
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        err "$1 has no venv module" "install it, for instance: apt-get install $minor"
    fi
    say "venv: installing $minor"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=300 update >&2 || say "venv: apt-get update failed; trying on"
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$minor" >&2 ||
        err "could not install $minor" "install it by hand and run again"
}

build() {
    python=$1 folder=$2 root=$3 wanted=$4
    say "venv: making $folder (once; later runs reuse it)"
    "$python" -m venv --clear "$folder"
    pip="$folder/bin/python -m pip --quiet --disable-pip-version-check"
    $pip install --require-hashes --requirement "$root/installers/requirements.lock" ||
        err "the packages of installers/requirements.lock could not be installed" \
            "see pip's message above; a mirror is set with pip config or PIP_INDEX_URL"
    $pip install --no-deps --no-build-isolation --editable "$root"
    printf '%s\n' "$wanted" >"$folder/.ready"
    # So that commands start quickly also where Python may write no bytecode.
    "$folder/bin/python" -m compileall -q "$root/sandbox" >&2 || :
}

main() {
    folder=${1:?usage: venv.sh FOLDER}
    root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
    python=$(pick_python)
    wanted=$(cat "$root/pyproject.toml" "$root/installers/requirements.lock" | cksum)
    wanted="$wanted $("$python" --version) $root"
    # The lock's descriptor stays open until this script ends.
    exec 9>>"$folder.lock"
    flock 9
    if [ "$(cat "$folder/.ready" 2>/dev/null || :)" = "$wanted" ]; then
        return 0
    fi
    ensure_venv_module "$python"
    build "$python" "$folder" "$root" "$wanted"
}

main "$@"
