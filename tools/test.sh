#!/bin/bash
# Everything `make test` checks, one step after the other, with a summary at the end. A step that
# fails does not stop those that can do without it. Non-zero when any failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# Checkouts in different folders share what ccache has compiled.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

jobs=$(nproc)
summary=()
passed=0
failed=0

note() {
    summary+=("$(printf '  %-8s %5s  %s' "$1" "$2" "$3")")
}

# step NAME COMMAND...: runs it, shows what it prints, remembers how it ended.
step() {
    local name=$1 start=$SECONDS status
    shift
    printf '\n=== %s\n' "$name"
    "$@" </dev/null
    status=$?
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        note passed "$((SECONDS - start))s" "$name"
    else
        failed=$((failed + 1))
        note FAILED "$((SECONDS - start))s" "$name"
    fi
    return $status
}

skip() {
    local name
    for name in "$@"; do
        failed=$((failed + 1))
        note "not run" "" "$name"
    done
}

build() {
    cmake --preset "$1" >"build/configure-$1.log" 2>&1 || {
        cat "build/configure-$1.log"
        return 1
    }
    grep '^-- DAK:' "build/configure-$1.log"
    cmake --build --preset "$1" --parallel "$jobs"
}

python_tests() {
    DAK_BUILD_DIR=$PWD/build/release DAK_MODEL_DIR=$PWD/models/SmolLM2-135M-Instruct \
        build/venv/bin/python -m pytest -q -p no:cacheprovider tests/python
}

if step "set-up" tools/setup.sh test; then
    if step "model" tools/fetch_smollm2.sh; then
        export DAK_MODEL_DIR=$PWD/models/SmolLM2-135M-Instruct
    fi
    if step "build" build release; then
        step "C++ tests" ctest --preset release --parallel "$jobs"
        step "Python tests" python_tests
    else
        skip "C++ tests" "Python tests"
    fi
    if step "build with ASan and UBSan" build asan; then
        # Without the real model: it takes minutes here and walks the same code as the tiny ones.
        step "C++ tests with ASan and UBSan" \
            env -u DAK_MODEL_DIR ctest --preset asan --parallel "$jobs"
    else
        skip "C++ tests with ASan and UBSan"
    fi
    if step "build of the fuzz targets" build fuzz; then
        step "60 s of fuzzing" tools/fuzz.sh 60
    else
        skip "60 s of fuzzing"
    fi
    step "format and layers" tools/lint.sh --quick
fi

printf '\n=== summary\n'
printf '%s\n' "${summary[@]}"
printf 'steps: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
