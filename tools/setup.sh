#!/bin/bash
# Installs what building and running DAK needs on Debian 12 and Ubuntu 24.04: packages through
# apt-get (only those that are missing), and the Python environment build/venv.
#
#   tools/setup.sh demo    what `make` and `make demo` need
#   tools/setup.sh test    that, and what `make test`, `make fuzz` and `make lint` need
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(
    g++ cmake ninja-build ccache
    libdnnl-dev nlohmann-json3-dev libcli11-dev libfmt-dev libicu-dev
    libgtest-dev libgmock-dev
    python3 python3-venv
)
test_packages=(
    make git
    clang libclang-rt-dev libomp-dev  # the fuzz build: libFuzzer, sanitizers, OpenMP
    clang-tidy
)
venv=build/venv

die() {
    echo "error: $*" >&2
    exit 1
}

# Each command's output goes here and is shown only when the command fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT

quietly() {
    local what=$1
    shift
    "$@" >"$log" 2>&1 </dev/null && return
    cat "$log" >&2
    die "$what"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_packages() {
    local missing=() package
    command -v dpkg-query >/dev/null || die "this script knows Debian and Ubuntu only; install the" \
        "counterparts of these packages and run cmake by hand: $*"
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null ||
            die "packages are missing and there is no sudo; as root run: apt-get install ${missing[*]}"
        # Asks for the password where there is someone to ask.
        sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } ||
            die "packages are missing and sudo is refused; as root run: apt-get install ${missing[*]}"
    fi
    # A machine just started may still be updating itself.
    local apt=(apt-get -q -y -o DPkg::Lock::Timeout=300)
    echo "setup: installing ${missing[*]}"
    quietly "apt-get update failed" as_root "${apt[@]}" update
    quietly "apt-get could not install ${missing[*]}" \
        as_root "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

install_python() {
    # A system upgrade may have taken away the interpreter that the environment was made with.
    if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        rm -rf "$venv"
        mkdir -p build
        echo "setup: making the Python environment $venv"
        quietly "cannot make the Python environment $venv" python3 -m venv "$venv"
    fi
    local requirements stamp
    for requirements in "$@"; do
        stamp=$venv/$(echo "$requirements" | tr / -).installed
        cmp -s "$requirements" "$stamp" && continue
        echo "setup: installing $requirements into $venv"
        quietly "pip could not install $requirements (is there a network?)" \
            "$venv/bin/python" -m pip install --quiet --retries 2 --disable-pip-version-check \
            --only-binary :all: -r "$requirements"
        cp "$requirements" "$stamp"
    done
}

case ${1:-} in
    demo)
        install_packages "${build_packages[@]}"
        install_python tools/requirements.txt
        ;;
    test)
        install_packages "${build_packages[@]}" "${test_packages[@]}"
        install_python tools/requirements.txt tests/python/requirements.txt
        ;;
    *)
        die "usage: tools/setup.sh demo|test"
        ;;
esac
