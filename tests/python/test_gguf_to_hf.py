"""tools/gguf_to_hf.py on small GGUF files made here."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

TOOL = Path(__file__).resolve().parents[2] / "tools" / "gguf_to_hf.py"
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MIDDLE, LAYERS = 32, 4, 2, 8, 64, 2
TOKENS = ["<|end|>", "<|user|>", "a", "b", "ab", "1", "2", "12", "Ġ"]
TYPES = [3, 3] + [1] * 7  # control, then normal
MERGES = ["a b", "1 2"]


def hf_shapes():
    shapes = {"model.embed_tokens.weight": (len(TOKENS), HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (HIDDEN,)
        shapes[prefix + "self_attn.q_proj.weight"] = (HEADS * HEAD_DIM, HIDDEN)
        shapes[prefix + "self_attn.k_proj.weight"] = (KV_HEADS * HEAD_DIM, HIDDEN)
        shapes[prefix + "self_attn.v_proj.weight"] = (KV_HEADS * HEAD_DIM, HIDDEN)
        shapes[prefix + "self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
        shapes[prefix + "post_attention_layernorm.weight"] = (HIDDEN,)
        shapes[prefix + "mlp.gate_proj.weight"] = (MIDDLE, HIDDEN)
        shapes[prefix + "mlp.up_proj.weight"] = (MIDDLE, HIDDEN)
        shapes[prefix + "mlp.down_proj.weight"] = (HIDDEN, MIDDLE)
    return shapes


GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    module = name.removesuffix(".weight")
    if not module.startswith("model.layers."):
        return GGUF_NAMES[module] + ".weight"
    layer, part = module.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[part]}.weight"


def interleave_rope_rows(rows):
    """Row i of a head's first half, then row i of its second half: as GGUF keeps q and k."""
    heads = rows.reshape(-1, HEAD_DIM, rows.shape[-1])
    order = [index for i in range(HEAD_DIM // 2) for index in (i, i + HEAD_DIM // 2)]
    return heads[:, order].reshape(rows.shape)


@pytest.fixture
def weights():
    random = np.random.default_rng(1)
    return {name: random.standard_normal(shape, dtype=np.float32)
            for name, shape in hf_shapes().items()}


def write_gguf(path, weights, architecture="llama", pre="smollm", quantization=None):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(MIDDLE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages }}")
    for name, values in weights.items():
        if "q_proj" in name or "k_proj" in name:
            values = interleave_rope_rows(values)
        if quantization is not None and values.ndim == 2:
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, quantization),
                              raw_dtype=quantization)
        else:
            writer.add_tensor(gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(tmp_path):
    return subprocess.run([sys.executable, TOOL, tmp_path / "model.gguf", tmp_path / "model"],
                          capture_output=True, text=True)


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "BF16"
        begin, end = entry["data_offsets"]
        upper = np.frombuffer(raw[8 + length + begin:8 + length + end], dtype="<u2")
        tensors[name] = (upper.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
    return tensors


def refusal(tmp_path):
    result = convert(tmp_path)
    assert result.returncode == 1
    assert not (tmp_path / "model").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.gguf"]
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_weights_are_rounded_to_nearest_bf16_in_hugging_face_order(tmp_path, weights):
    exact = weights["model.norm.weight"]
    # Halfway between two bf16 values: to the even one, down and up.
    exact[:3] = np.array([0x3F808000, 0x3F818000, 0x3F808001], dtype=np.uint32).view(np.float32)
    write_gguf(tmp_path / "model.gguf", weights)
    assert convert(tmp_path).returncode == 0
    tensors = read_safetensors(tmp_path / "model" / "model.safetensors")
    assert tensors.keys() == weights.keys()
    for name, values in weights.items():
        assert tensors[name].shape == values.shape
        # Half a unit in the last of bf16's eight significant bits.
        assert np.all(np.abs(tensors[name] - values) <= np.abs(values) * 2.0**-8), name
    rounded = tensors["model.norm.weight"][:3].view(np.uint32)
    assert [hex(bits) for bits in rounded] == ["0x3f800000", "0x3f820000", "0x3f810000"]


def test_quantized_weights_are_dequantized(tmp_path, weights):
    write_gguf(tmp_path / "model.gguf", weights, quantization=gguf.GGMLQuantizationType.Q8_0)
    assert convert(tmp_path).returncode == 0
    tensors = read_safetensors(tmp_path / "model" / "model.safetensors")
    for name, values in weights.items():
        assert np.abs(tensors[name] - values).max() < 0.04, name


def test_config(tmp_path, weights):
    write_gguf(tmp_path / "model.gguf", weights)
    assert convert(tmp_path).returncode == 0
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["num_hidden_layers"] == LAYERS
    assert config["num_attention_heads"] == HEADS
    assert config["num_key_value_heads"] == KV_HEADS
    assert config["head_dim"] == HEAD_DIM
    assert config["vocab_size"] == len(TOKENS)
    assert config["max_position_embeddings"] == 128
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_theta"] == 100000.0
    assert config["tie_word_embeddings"] is True
    generation = json.loads((tmp_path / "model" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == 0


def test_separate_head_is_not_tied(tmp_path, weights):
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"][::-1].copy()
    write_gguf(tmp_path / "model.gguf", weights)
    assert convert(tmp_path).returncode == 0
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert "lm_head.weight" in read_safetensors(tmp_path / "model" / "model.safetensors")


def test_tokenizer(tmp_path, weights):
    write_gguf(tmp_path / "model.gguf", weights)
    assert convert(tmp_path).returncode == 0
    tokenizer = Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    # "12" has a merge, but digits stand alone.
    assert tokenizer.encode("<|user|>ab 12").tokens == ["<|user|>", "ab", "Ġ", "1", "2"]
    assert tokenizer.decode([1, 4, 8, 5]) == "ab 1"
    settings = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert settings["chat_template"] == "{{ messages }}"
    assert settings["bos_token"] == "<|user|>"
    assert settings["eos_token"] == "<|end|>"


def test_other_architecture_is_refused_by_name(tmp_path, weights):
    write_gguf(tmp_path / "model.gguf", weights, architecture="mamba")
    assert "architecture 'mamba' is not supported" in refusal(tmp_path)


def test_other_pre_tokenizer_is_refused_by_name(tmp_path, weights):
    write_gguf(tmp_path / "model.gguf", weights, pre="tekken")
    assert "pre-tokenizer 'tekken' is not supported" in refusal(tmp_path)


def test_missing_tensor_is_named(tmp_path, weights):
    del weights["model.layers.1.mlp.up_proj.weight"]
    write_gguf(tmp_path / "model.gguf", weights)
    assert "'model.layers.1.mlp.up_proj.weight' is missing" in refusal(tmp_path)


def test_values_that_are_not_finite_are_refused(tmp_path, weights):
    weights["model.norm.weight"][3] = np.nan
    write_gguf(tmp_path / "model.gguf", weights)
    assert "'output_norm.weight' has values that are not finite" in refusal(tmp_path)


@pytest.mark.parametrize("kept", [0, 3, 1000, -1000])
def test_truncated_file_is_refused(tmp_path, weights, kept):
    path = tmp_path / "model.gguf"
    write_gguf(path, weights)
    path.write_bytes(path.read_bytes()[:kept])
    assert "no complete GGUF file" in refusal(tmp_path)


def test_existing_folder_is_left_alone(tmp_path, weights):
    write_gguf(tmp_path / "model.gguf", weights)
    (tmp_path / "model").mkdir()
    result = convert(tmp_path)
    assert result.returncode == 1
    assert "exists already" in result.stderr
    assert not list((tmp_path / "model").iterdir())
