#!/usr/bin/env bash
# Runs what needs a GPU: its tests, the memory checker on small shapes, the benchmarks.
#
#   tools/gpu_run.sh BUILD_DIR OUT_DIR [STEP...]
#
# BUILD_DIR holds the built programs (at any depth; shared libraries beside them are found), OUT_DIR
# receives logs and result files. Steps, all by default: test memcheck profile bench hf engine; and
# with two GPUs or more peer-kernels peer-engine, for GPU 1 as the remote tier, together under 15
# minutes. BENCH_ARGS adds options to bench_gemm, HF_ARGS to hf_generate.py, COMMIT is recorded in
# the results.
set -uo pipefail

here=$(dirname "$0")
build=$1
out=$2
shift 2
steps=("$@")
if [ ${#steps[@]} -eq 0 ]; then
    steps=(test memcheck profile bench hf engine)
    gpus=$(nvidia-smi -L 2> /dev/null | grep -c "^GPU")
    [ "$gpus" -lt 2 ] || steps+=(peer-kernels peer-engine)
fi
mkdir -p "$out"
failed=0

program() { find "$build" -type f -name "$1" -perm -u+x | head -n 1; }
export LD_LIBRARY_PATH="$build:${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64"

# run NAME LIMIT_S COMMAND...: time-limited, logged, and counted when it fails.
run() {
    local name=$1 limit=$2
    shift 2
    echo "== $name"
    timeout "$limit" "$@" > "$out/$name.log" 2>&1
    local status=$?
    if [ $status -ne 0 ]; then
        echo "FAILED ($status): $name"
        failed=1
    fi
}

# The same for the peer tier: everything goes into one archive, which holds what there is also when
# a later run does not end.
peer_out=$(mktemp -d)
trap 'rm -rf "$peer_out"' EXIT
peer_run() {
    local name=$1 archive=$out/peer.tar.gz out=$peer_out
    run "$@"
    grep -vE '^\[( RUN|       OK|---)' "$out/$name.log"
    tar -czf "$archive" -C "$out" .
}

# Every step measures with the machine's own profile.
peer_profile() {
    export XDG_CACHE_HOME=$peer_out/cache
    [ -e "$peer_out/profile-peer.json" ] || peer_run profile-peer 60 "$(program dak)" profile \
        --remote peer:1 --output "$peer_out/profile-peer.json" --plot "$peer_out/window-peer.svg"
}

peer_bench() {
    local name=$1 model=$2
    shift 2
    peer_run "engine-peer-$name" 110 "$(program dak)" bench "$model" --remote peer:1 \
        --case-seconds 1 --commit "${COMMIT:-unknown}" --json "$peer_out/engine-peer-$name.json" \
        --plot "$peer_out/engine-peer-$name.svg" "$@"
}

for step in "${steps[@]}"; do
    case $step in
        test)
            for test in test_arena_cuda test_small_ops test_split_attention test_split_gemm \
                test_folded_norm test_cuda_engine test_gpu_engine test_gpu_loading; do
                run "$test" 240 "$(program $test)"
                grep -E "^\[  (PASSED|FAILED|SKIPPED)|Failure|\| (decode|prefill|memory|loading)|differ" \
                    "$out/$test.log" | head -n 20
            done
            ;;
        memcheck)
            run memcheck 200 compute-sanitizer --tool memcheck --error-exitcode 1 \
                "$(program test_split_gemm)" --gtest_filter='*SmallShapes*:*Ring*:*Refuses*'
            tail -n 3 "$out/memcheck.log"
            run memcheck_small_ops 100 compute-sanitizer --tool memcheck --error-exitcode 1 \
                "$(program test_small_ops)" \
                --gtest_filter='*Extreme*:*Broken*:*Graph*:*Rope*:*Embed*:*Gathers*:*Random*'
            tail -n 3 "$out/memcheck_small_ops.log"
            run memcheck_attention 200 compute-sanitizer --tool memcheck --error-exitcode 1 \
                "$(program test_split_attention)" --gtest_filter='*Empty*:*Waits*:*Layer*:*Windows*'
            tail -n 3 "$out/memcheck_attention.log"
            run memcheck_engine 200 compute-sanitizer --tool memcheck --error-exitcode 1 \
                "$(program test_cuda_engine)" --gtest_filter='*Logits*qwen3:*Graphs*opt_post_norm'
            tail -n 3 "$out/memcheck_engine.log"
            ;;
        profile)
            # Measured twice: a rerun must agree.
            run test_profiler 90 "$(program test_profiler)"
            grep -E "^\[  (PASSED|FAILED|SKIPPED)|Failure" "$out/test_profiler.log" | head -n 20
            run profile 60 env XDG_CACHE_HOME="$out" "$(program dak)" profile --force \
                --output "$out/profile.json" --plot "$out/window.svg"
            cat "$out/profile.log"
            ;;
        bench)
            # shellcheck disable=SC2086
            run bench_gemm 500 "$(program bench_gemm)" --json "$out/bench_gemm.json" \
                --commit "${COMMIT:-unknown}" ${BENCH_ARGS:-}
            cat "$out/bench_gemm.log"
            run bench_small_ops 60 "$(program bench_small_ops)" --json "$out/bench_small_ops.json" \
                --commit "${COMMIT:-unknown}"
            cat "$out/bench_small_ops.log"
            "$(program bench_attention)" --list > "$out/attention_cases.json"
            run sdpa_peer 200 python3 -W ignore "$here/../bench/sdpa_peer.py" \
                "$out/attention_cases.json" "$out/sdpa_peer.json"
            run bench_attention 200 "$(program bench_attention)" --peer "$out/sdpa_peer.json" \
                --json "$out/bench_attention.json" --commit "${COMMIT:-unknown}"
            cat "$out/bench_attention.log"
            ;;
        hf)
            # Hugging Face's TPOT, which the step engine puts beside ours.
            # shellcheck disable=SC2086
            run hf_generate 560 python3 -W ignore "$here/../bench/hf_generate.py" \
                "$out/hf_generate.json" ${HF_ARGS:-}
            cat "$out/hf_generate.log"
            ;;
        engine)
            # Batch 8 over all ratios and transports; batch 512 over those where policies differ.
            dak=$(program dak)
            reference=()
            [ -f "$out/hf_generate.json" ] && reference=(--reference "$out/hf_generate.json")
            for model in opt-30b opt-6.7b llama-2-7b; do
                run "engine-$model" 240 "$dak" bench "$model" \
                    --ratio 0,0.0025,0.005,0.01,0.0125,0.015,0.02,0.05,0.1,0.25,0.5,1 \
                    --transports direct,staged,auto --case-seconds 0.5 --commit "${COMMIT:-unknown}" \
                    "${reference[@]}" --json "$out/engine-$model.json" --plot "$out/engine-$model.svg"
                cat "$out/engine-$model.log"
            done
            for model in opt-30b opt-6.7b llama-2-7b; do
                run "engine-$model-batch-512" 240 "$dak" bench "$model" --batch 512 \
                    --ratio 0,0.01,0.02,0.026,0.03,0.035,0.05,0.1 --policies greedy,uniform \
                    --transports direct --case-seconds 1 --commit "${COMMIT:-unknown}" \
                    --json "$out/engine-$model-batch-512.json" \
                    --plot "$out/engine-$model-batch-512.svg"
                cat "$out/engine-$model-batch-512.log"
            done
            # The paper's fourth configuration: 151 GB, of which 90 GiB on the GPU.
            run engine-opt-30b-90gib 120 "$dak" bench opt-30b --batch 128 --prompt 512 \
                --gpu-memory 90GiB --commit "${COMMIT:-unknown}" --json "$out/engine-opt-30b-90gib.json"
            cat "$out/engine-opt-30b-90gib.log"
            ;;
        peer-kernels)
            peer_profile
            peer_run test-arena-peer 30 "$(program test_arena_cuda)"
            peer_run test-engine-peer 60 "$(program test_cuda_engine)" \
                --gtest_filter='*Err*:*Greedy*qwen3*:*Graphs*qwen3*'
            peer_run bench-gemm-peer 150 "$(program bench_gemm)" --remote peer:1 \
                --sections splits,window,congestion,alignment,multicast,amplification,zero-copy \
                --tokens 8,64,256,512,1024 --json "$peer_out/bench-gemm-peer.json" \
                --commit "${COMMIT:-unknown}"
            peer_run bench-remote-workers 60 "$(program bench_gemm)" --remote peer:1 \
                --sections remote-workers --json "$peer_out/bench-remote-workers.json" \
                --commit "${COMMIT:-unknown}"
            peer_run bench-attention-peer 100 "$(program bench_attention)" --remote peer:1 \
                --only split --json "$peer_out/bench-attention-peer.json" \
                --commit "${COMMIT:-unknown}"
            ;;
        peer-engine)
            # Batch 8 over all ratios and transports; batch 512, where policies differ.
            peer_profile
            peer_run plan-peer 10 "$(program dak)" plan opt-30b --remote peer:1
            for model in opt-30b opt-6.7b llama-2-7b; do
                peer_bench "$model" "$model" --transports direct,staged,auto \
                    --ratio 0,0.02,0.04,0.06,0.07,0.08,0.1,0.15,0.2,0.3,0.5,0.75,1
            done
            for model in opt-30b llama-2-7b; do
                peer_bench "$model-batch-512" "$model" --batch 512 --policies greedy,uniform \
                    --transports direct --ratio 0,0.05,0.1,0.15,0.2,0.25,0.3,0.4,0.5,0.75,1
            done
            ;;
        *)
            echo "no step called $step" >&2
            exit 2
            ;;
    esac
done
exit $failed
