#!/bin/bash
# Runs every fuzz target of build/fuzz, together for about SECONDS, from the committed corpora.
#
#   tools/fuzz.sh [SECONDS]        default: 60
#
# What a target finds to be new goes to build/fuzz/found/TARGET and is used by the next run; an input
# that crashes, leaks or takes longer than 10 s is kept in build/fuzz/artifacts and fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "usage: tools/fuzz.sh [SECONDS]" >&2; exit 1; }

targets=(build/fuzz/bin/fuzz_*)
[ -x "${targets[0]}" ] || { echo "error: no fuzz targets; build the preset 'fuzz'" >&2; exit 1; }
share=$(((seconds + ${#targets[@]} - 1) / ${#targets[@]}))

mkdir -p build/fuzz/artifacts
failed=()
for target in "${targets[@]}"; do
    name=$(basename "$target")
    corpus=tests/fuzz/corpus/${name#fuzz_}
    found=build/fuzz/found/$name
    log=build/fuzz/$name.log
    mkdir -p "$found"
    if "$target" -max_total_time="$share" -timeout=10 -rss_limit_mb=2048 -verbosity=1 \
        -print_final_stats=1 -artifact_prefix="build/fuzz/artifacts/$name-" \
        "$found" "$corpus" >"$log" 2>&1 </dev/null; then
        executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "fuzz: $name: $executions inputs in $share s, no fault"
    else
        tail -n 60 "$log"
        echo "fuzz: $name: FAULT, see $log"
        failed+=("$name")
    fi
done
[ ${#failed[@]} -eq 0 ]
