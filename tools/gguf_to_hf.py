#!/usr/bin/env python3
"""Turns a GGUF file of a Llama-architecture model into a Hugging Face style folder.

    python tools/gguf_to_hf.py model.gguf models/NAME

The folder gets config.json, generation_config.json, model.safetensors (bf16), tokenizer.json and
tokenizer_config.json. It appears under its name only when it is complete. Anything in the file that
this tool does not know is refused by name.
"""

import argparse
import json
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}
# GGUF names a pre-tokenizer; tokenizer.json spells it out.
PRE_TOKENIZERS = {
    "smollm": {"type": "Sequence",
               "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
}

GLOBAL_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_TENSORS = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


class ConversionError(Exception):
    pass


class Metadata:
    """The key-value part of a GGUF file."""

    def __init__(self, reader):
        self.fields = reader.fields

    def get(self, key, default=None):
        field = self.fields.get(key)
        return default if field is None else field.contents()

    def __getitem__(self, key):
        value = self.get(key)
        if value is None:
            raise ConversionError(f"the file has no '{key}'")
        return value


def hf_tensor_name(name):
    if name in GLOBAL_TENSORS:
        return GLOBAL_TENSORS[name]
    block, _, rest = name.partition(".")
    layer, _, part = rest.partition(".")
    if block == "blk" and layer.isdigit() and part in LAYER_TENSORS:
        return f"model.layers.{layer}.{LAYER_TENSORS[part]}"
    raise ConversionError(f"tensor '{name}' is not one of a plain Llama model")


def short_decimal(value):
    """The shortest decimal that names the same float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def make_config(meta, tied):
    hidden = meta["llama.embedding_length"]
    heads = meta["llama.attention.head_count"]
    scaling = meta.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise ConversionError(f"rope scaling '{scaling}' is not supported")
    head_dim = meta.get("llama.attention.key_length", hidden // heads)
    if meta.get("llama.rope.dimension_count", head_dim) != head_dim:
        raise ConversionError("rope over a part of the head is not supported")
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": meta["llama.feed_forward_length"],
        "max_position_embeddings": meta["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": meta["llama.block_count"],
        "num_key_value_heads": meta.get("llama.attention.head_count_kv", heads),
        "rms_norm_eps": short_decimal(meta["llama.attention.layer_norm_rms_epsilon"]),
        "rope_scaling": None,
        "rope_theta": short_decimal(meta.get("llama.rope.freq_base", 10000.0)),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
    }


def make_generation_config(meta):
    end = meta["tokenizer.ggml.eos_token_id"]
    end_of_turn = meta.get("tokenizer.ggml.eot_token_id", end)
    return {
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": end if end_of_turn == end else [end, end_of_turn],
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id", end),
    }


def make_tokenizer(meta):
    kind = meta["tokenizer.ggml.model"]
    if kind != "gpt2":
        raise ConversionError(f"tokenizer model '{kind}' is not supported (byte-level BPE is)")
    pre = meta["tokenizer.ggml.pre"]
    if pre not in PRE_TOKENIZERS:
        raise ConversionError(f"pre-tokenizer '{pre}' is not supported "
                              f"(known: {', '.join(PRE_TOKENIZERS)})")
    for flag in ("add_bos_token", "add_eos_token"):
        if meta.get(f"tokenizer.ggml.{flag}", False):
            raise ConversionError(f"a tokenizer with {flag} set is not supported")
    tokens = meta["tokenizer.ggml.tokens"]
    added = []
    for token_id, kind in enumerate(meta["tokenizer.ggml.token_type"]):
        if kind == gguf.TokenType.NORMAL:
            continue
        if kind not in (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED):
            raise ConversionError(f"token {token_id} has the unsupported type {kind}")
        added.append({"id": token_id, "content": tokens[token_id], "single_word": False,
                      "lstrip": False, "rstrip": False, "normalized": False,
                      "special": kind == gguf.TokenType.CONTROL})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": meta["tokenizer.ggml.merges"],
        },
    }


def make_tokenizer_config(meta, added_tokens):
    tokens = meta["tokenizer.ggml.tokens"]
    config = {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in added_tokens
        },
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta["llama.context_length"],
        "tokenizer_class": "GPT2Tokenizer",
    }
    for name, key in (("bos_token", "bos_token_id"), ("eos_token", "eos_token_id"),
                      ("unk_token", "unknown_token_id"), ("pad_token", "padding_token_id")):
        token_id = meta.get(f"tokenizer.ggml.{key}")
        if token_id is not None:
            config[name] = tokens[token_id]
    template = meta.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


def to_bf16(values):
    """The upper half of each float32, rounded to nearest even, as uint16."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).astype("<u2")


def split_rope_halves(rows, heads):
    """GGUF pairs neighbouring rows of each head for rope; Hugging Face pairs the two halves."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def read_tensor(tensor, config):
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    if not np.isfinite(values).all():
        raise ConversionError(f"tensor '{tensor.name}' has values that are not finite")
    if tensor.name.endswith("attn_q.weight"):
        values = split_rope_halves(values, config["num_attention_heads"])
    elif tensor.name.endswith("attn_k.weight"):
        values = split_rope_halves(values, config["num_key_value_heads"])
    return to_bf16(values)


def write_safetensors(path, tensors, config):
    """Writes one tensor after the other, so that only one is in memory."""
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        shape = [int(size) for size in reversed(tensor.shape)]  # GGUF: fastest dimension first
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start on an 8-byte boundary
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(read_tensor(tensor, config).tobytes())


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def expected_tensors(config):
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    for layer in range(config["num_hidden_layers"]):
        names += [f"model.layers.{layer}.{part}" for part in LAYER_TENSORS.values()]
    return names


def open_gguf(path):
    try:
        return gguf.GGUFReader(path)
    except (IndexError, KeyError, ValueError) as error:  # what the reader meets first
        raise ConversionError(f"this is no complete GGUF file ({error})") from error


def convert(gguf_path, folder):
    reader = open_gguf(gguf_path)
    meta = Metadata(reader)
    architecture = meta["general.architecture"]
    if architecture != "llama":
        raise ConversionError(f"architecture '{architecture}' is not supported (llama is)")
    tensors = {hf_tensor_name(tensor.name): tensor for tensor in reader.tensors}
    config = make_config(meta, tied="lm_head.weight" not in tensors)
    missing = [name for name in expected_tensors(config) if name not in tensors]
    if missing:
        raise ConversionError(f"tensor '{missing[0]}' is missing ({len(missing)} in all)")
    tokenizer = make_tokenizer(meta)

    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", make_generation_config(meta))
    write_json(folder / "tokenizer.json", tokenizer)
    write_json(folder / "tokenizer_config.json",
               make_tokenizer_config(meta, tokenizer["added_tokens"]))
    write_safetensors(folder / "model.safetensors", tensors, config)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gguf", type=Path, help="the GGUF file to read")
    parser.add_argument("folder", type=Path, help="the folder to make; must not exist")
    args = parser.parse_args()

    if args.folder.exists():
        sys.exit(f"error: {args.folder} exists already; remove it or choose another folder")
    args.folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{args.folder.name}.", dir=args.folder.parent))
    try:
        convert(args.gguf, partial)
        partial.chmod(0o755)  # mkdtemp's folder is its owner's alone
        os.rename(partial, args.folder)
    except (ConversionError, OSError) as error:
        sys.exit(f"error: cannot convert {args.gguf}: {error}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    main()
