#!/usr/bin/env python3
"""Makes the golden files of tests/golden with Hugging Face transformers.

    pip install torch transformers==5.24.0
    python tools/make_goldens.py --model models/SmolLM2-135M-Instruct

Each tiny random model becomes a Hugging Face folder (config.json, model.safetensors) with:

    expected.json        {"vocab_size", "max_new_tokens", "prompts": [{
                             "prompt_ids",      the prompt
                             "greedy_ids",      the tokens of greedy decoding, never stopped by an EOS
                             "greedy_logits",   the logit of each of them
                             "margins"          how far it was ahead of the second-best logit
                         }]}
    expected_logits.bin  float32, little-endian, [prompts, vocab_size]: after the prompt's last token
    low_precision.json   {"bf16", "fp16"}: the largest error of such a logit, or of a greedy one,
                         when PyTorch computes in that type

smollm2-135m-instruct.json has the same fields and, for each prompt, the user's text, the rendered
chat prompt and the eight best tokens after it. The reference computes in fp32 from the weights as
stored, with eager attention and a KV cache, one token a step as generate() does. Where a margin is
smaller than the tested computation's error, tokens may differ from that step on.
"""

import argparse
import copy
import inspect
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from transformers import (LlamaConfig, MistralConfig, OPTConfig, Qwen2Config, Qwen3Config)

GOLDEN_DIR = Path(__file__).resolve().parent.parent / "tests" / "golden"
MAX_NEW_TOKENS = 40
# Around one 64-token KV page, far past it, and the shortest.
PROMPT_LENGTHS = (1, 7, 64, 65, 150)
# Of so many random prompts one is kept: among those whose text does not repeat a few tokens, the one
# whose smallest margin is the largest, so that a lower precision has a fair chance to decode the
# same tokens.
CANDIDATES = 96
VARIED_TOKENS = 10
CHAT_TOKENS = 64
# Chosen for margins that a bf16 computation can be expected to keep.
CHAT_PROMPTS = (
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Explain in simple words why the sky is blue.",
    "Give me a recipe for pancakes, with the ingredients first.",
    "How does a bicycle stay upright?",
    "What is photosynthesis?",
)


@dataclass
class TinyModel:
    name: str
    config: transformers.PretrainedConfig
    dtype: torch.dtype = torch.bfloat16
    old_keys: bool = False  # config.json with torch_dtype, rope_theta and rope_scaling
    shard_bytes: int = 0    # several shards of this size and an index
    prompt_lengths: tuple = PROMPT_LENGTHS


# No token ends a text: the tests decode a fixed number of tokens.
COMMON = dict(bos_token_id=1, eos_token_id=None, pad_token_id=None, max_position_embeddings=256)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
                   high_freq_factor=4.0, original_max_position_embeddings=64)


def tiny_models():
    return [
        TinyModel("opt-pre-norm", OPTConfig(
            vocab_size=128, hidden_size=64, word_embed_proj_dim=64, ffn_dim=240,
            num_hidden_layers=2, num_attention_heads=2, do_layer_norm_before=True, **COMMON),
            dtype=torch.float16, old_keys=True),
        TinyModel("opt-post-norm", OPTConfig(
            vocab_size=131, hidden_size=64, word_embed_proj_dim=32, ffn_dim=192,
            num_hidden_layers=2, num_attention_heads=4, do_layer_norm_before=False, **COMMON)),
        TinyModel("llama-llama3-rope", LlamaConfig(
            vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=64,
            rope_parameters=LLAMA3_ROPE, **COMMON)),
        # The same form of rope in the keys that Llama 3.x checkpoints were published with.
        TinyModel("llama-llama3-rope-old-keys", LlamaConfig(
            vocab_size=101, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            rope_parameters=LLAMA3_ROPE, **COMMON), old_keys=True),
        # No size is a multiple of 64.
        TinyModel("llama-linear-rope", LlamaConfig(
            vocab_size=157, hidden_size=60, intermediate_size=90, num_hidden_layers=3,
            num_attention_heads=3, num_key_value_heads=3,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5), **COMMON),
            old_keys=True, shard_bytes=100_000),
        # The scaling starts past max_position_embeddings: in the middle of decoding from a prompt
        # of 40 tokens, at once from one of 65.
        TinyModel("llama-dynamic-rope", LlamaConfig(
            vocab_size=100, hidden_size=64, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0),
            **{**COMMON, "max_position_embeddings": 64}),
            dtype=torch.float32, prompt_lengths=(1, 7, 40, 64, 65, 150)),
        TinyModel("mistral", MistralConfig(
            vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=64, sliding_window=24,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0), **COMMON),
            old_keys=True),
        TinyModel("qwen2", Qwen2Config(
            vocab_size=151, hidden_size=96, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **COMMON)),
        TinyModel("qwen3", Qwen3Config(
            vocab_size=128, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=3, num_key_value_heads=1, head_dim=64,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **COMMON)),
    ]


def random_model(tiny, seed):
    """Weights that make every part matter: layers outweigh the embedding (or a tied head would
    repeat the last token), attention is not uniform, no bias is zero, no norm weight is one."""
    generator = torch.Generator().manual_seed(seed)
    gains = {"q_proj": 1.75, "k_proj": 1.75, "v_proj": 2.0, "o_proj": 2.0, "out_proj": 2.0,
             "fc2": 0.7, "down_proj": 2.0}
    model = transformers.AutoModelForCausalLM.from_config(tiny.config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(0.2 * noise + (0.0 if name.endswith("bias") else 1.0))
            elif name.endswith("bias"):
                parameter.copy_(0.1 * noise)
            elif "embed" in name:
                parameter.copy_(0.15 * noise)
            else:
                gain = gains.get(name.split(".")[-2], 1.5)
                parameter.copy_(gain * noise / parameter.shape[-1] ** 0.5)
    return model.to(tiny.dtype)


def use_old_keys(config):
    config["torch_dtype"] = config.pop("dtype")
    rope = config.pop("rope_parameters", None)
    if rope is None:
        return
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    if kind == "default":
        config["rope_scaling"] = None
    elif kind == "linear":  # older still: "type" instead of "rope_type"
        config["rope_scaling"] = {"type": kind, **rope}
    else:
        config["rope_scaling"] = {"rope_type": kind, **rope}


def save(model, tiny, folder):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=tiny.shard_bytes or "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    if tiny.old_keys:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        use_old_keys(config)
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def load(folder, dtype=torch.float32):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def run(model, tokens, cache):
    """Logits of all tokens. Versions of transformers differ in what they call the cache."""
    parameters = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in parameters else "past_key_values"
    return model(tokens, **{name: cache}).logits


@torch.no_grad()
def decode_greedily(model, prompts, steps):
    """prompts [batch, length] -> logits after the prompt [batch, vocab]; ids, their logits and
    margins, each [batch, steps]."""
    model = copy.deepcopy(model)  # dynamic rope keeps the longest length seen
    cache = transformers.DynamicCache(config=model.config)
    tokens = prompts
    first, ids, best, margins = None, [], [], []
    for _ in range(steps):
        logits = run(model, tokens, cache)[:, -1].float()
        first = logits if first is None else first
        top = logits.topk(2)
        tokens = top.indices[:, :1]
        ids.append(tokens)
        best.append(top.values[:, :1])
        margins.append(top.values[:, :1] - top.values[:, 1:])
    return first, torch.cat(ids, 1), torch.cat(best, 1), torch.cat(margins, 1)


def logits_along(model, prompt_ids, greedy_ids):
    """Logits after the prompt [vocab], and each greedy token's [steps], whatever this model's
    greedy tokens are."""
    model = copy.deepcopy(model)  # dynamic rope keeps the longest length seen
    cache = transformers.DynamicCache(config=model.config)
    tokens, first, greedy = torch.tensor([prompt_ids]), None, []
    for token in greedy_ids:
        logits = run(model, tokens, cache)[0, -1].float()
        first = logits if first is None else first
        greedy.append(logits[token])
        tokens = torch.tensor([[token]])
    return first, torch.stack(greedy)


def pick_prompt(model, length, vocab_size, generator):
    candidates = torch.randint(0, vocab_size, (CANDIDATES, length), generator=generator)
    _, ids, _, margins = decode_greedily(model, candidates, MAX_NEW_TOKENS)
    variety = [min(len(set(row)), VARIED_TOKENS) for row in ids.tolist()]
    smallest_margins = margins.min(1).values.tolist()
    best = max(range(CANDIDATES), key=lambda row: (variety[row], smallest_margins[row]))
    return candidates[best].unsqueeze(0)


def rounded(values, digits=6):
    return [round(value, digits) for value in values.tolist()]


def greedy_record(prompt, ids, logits, margins):
    return {
        "prompt_ids": prompt[0].tolist(),
        "greedy_ids": ids[0].tolist(),
        "greedy_logits": rounded(logits[0]),
        "margins": rounded(margins[0]),
    }


def write_expected(path, vocab_size, max_new_tokens, records):
    """JSON with one field of a record on a line."""
    prompts = ",\n".join(
        "  {" + ",\n   ".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
                            for key, value in record.items()) + "}"
        for record in records)
    path.write_text(f'{{"vocab_size": {vocab_size}, "max_new_tokens": {max_new_tokens}, '
                    f'"prompts": [\n{prompts}\n]}}\n', encoding="utf-8")


def make_tiny(tiny, seed):
    folder = GOLDEN_DIR / tiny.name
    save(random_model(tiny, seed), tiny, folder)
    model = load(folder)
    vocab_size = tiny.config.vocab_size
    generator = torch.Generator().manual_seed(seed)
    records, first_logits = [], []
    for length in tiny.prompt_lengths:
        prompt = pick_prompt(model, length, vocab_size, generator)
        first, ids, logits, margins = decode_greedily(model, prompt, MAX_NEW_TOKENS)
        records.append(greedy_record(prompt, ids, logits, margins))
        first_logits.append(first)
        print(f"{tiny.name}: prompt {length}, {len(set(ids[0].tolist()))} different tokens, "
              f"smallest margin {margins.min():.4f}, logits' std {first.std():.2f}")
    write_expected(folder / "expected.json", vocab_size, MAX_NEW_TOKENS, records)
    torch.cat(first_logits).numpy().astype("<f4").tofile(folder / "expected_logits.bin")
    write_low_precision_errors(folder, vocab_size)


@torch.no_grad()
def write_low_precision_errors(folder, vocab_size):
    """What a computation in 16 bits may be expected to err."""
    expected = torch.from_numpy(
        np.fromfile(folder / "expected_logits.bin", "<f4").reshape(-1, vocab_size))
    records = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["prompts"]
    errors = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        model = load(folder, dtype)
        error = 0.0
        for record, after_prompt in zip(records, expected):
            first, greedy = logits_along(model, record["prompt_ids"], record["greedy_ids"])
            error = max(error, (first - after_prompt).abs().max().item(),
                        (greedy - torch.tensor(record["greedy_logits"])).abs().max().item())
        errors[name] = round(error, 6)
    (folder / "low_precision.json").write_text(json.dumps(errors) + "\n")
    print(f"{folder.name}: errors {errors}")


def make_smollm2(model_dir):
    model = load(model_dir)
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    chat = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    settings = json.loads((model_dir / "tokenizer_config.json").read_text())
    records = []
    for text in CHAT_PROMPTS:
        prompt = chat.apply_chat_template(
            [{"role": "user", "content": text}], chat_template=settings["chat_template"],
            add_generation_prompt=True, tokenize=False)
        prompt_ids = torch.tensor([tokenizer.encode(prompt).ids])
        first, ids, logits, margins = decode_greedily(model, prompt_ids, CHAT_TOKENS)
        top = first[0].topk(8)
        records.append({
            "text": text, "prompt": prompt,
            **greedy_record(prompt_ids, ids, logits, margins),
            "top_ids": top.indices.tolist(), "top_logits": rounded(top.values),
            "greedy_text": tokenizer.decode(ids[0].tolist()),
        })
        print(f"smollm2: smallest margin {margins.min():.4f}: {records[-1]['greedy_text'][:70]!r}")
    write_expected(GOLDEN_DIR / "smollm2-135m-instruct.json", model.config.vocab_size,
                   CHAT_TOKENS, records)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path,
                        help="folder of SmolLM2-135M-Instruct (tools/fetch_smollm2.sh makes it); "
                             "without it, only the tiny models are made")
    parser.add_argument("--only", action="append", metavar="NAME",
                        help="make this tiny model only; may be given several times")
    parser.add_argument("--errors-only", action="store_true",
                        help="make low_precision.json of the models that are there, nothing else")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    GOLDEN_DIR.mkdir(parents=True, exist_ok=True)
    for seed, tiny in enumerate(tiny_models()):
        if args.only and tiny.name not in args.only:
            continue
        if args.errors_only:
            write_low_precision_errors(GOLDEN_DIR / tiny.name, tiny.config.vocab_size)
        else:
            make_tiny(tiny, seed)
    if args.model:
        make_smollm2(args.model)


if __name__ == "__main__":
    main()
