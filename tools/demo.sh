#!/bin/bash
# Lets the model at $MODEL answer $PROMPT. Where DAK computes on a GPU, the fetched model gets less GPU
# memory than it needs, so that the split over two tiers can be seen.
set -euo pipefail
cd "$(dirname "$0")/.."

small=models/SmolLM2-135M-Instruct
options=()
if [ "$MODEL" = $small ]; then
    tools/fetch_smollm2.sh
    if build/release/dak info --json | grep -q '"computes_on": "gpu"'; then
        options=(--gpu-memory 1.2GiB)
    fi
fi
set -x
build/release/dak run "$MODEL" --prompt "$PROMPT" "${options[@]}"
