#!/bin/bash
# Checks our own code: format, layers, and (without --quick) clang-tidy, which needs build/release
# to be configured.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
find src tests -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' | sort >build/sources

if xargs build/venv/bin/clang-format --dry-run --Werror <build/sources; then
    echo "format: $(wc -l <build/sources) files"
else
    echo "format: see above; build/venv/bin/clang-format -i FILE mends it"
    failed=1
fi

build/venv/bin/python tools/check_layers.py || failed=1

if [ "${1:-}" != --quick ]; then
    # CUDA sources need nvcc's own front end. GCC's options are not all clang's.
    if grep '\.cpp$' build/sources | xargs -P "$(nproc)" -n 4 \
        clang-tidy -p build/release --quiet --extra-arg=-Wno-unknown-warning-option; then
        echo "clang-tidy: no finding"
    else
        failed=1
    fi
fi
exit $failed
