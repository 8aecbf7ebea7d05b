"""Our tokenizer against the tokenizers package: the same ids and the same text, for every family's
pipeline, on a corpus of more than 6,000 lines."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tokenizer_corpus import assigned_characters, corpus
from tokenizer_families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DAK_BUILD_DIR", ROOT / "build"))
TOOL = BUILD / "tests/model/tokenizer/tokenize_lines"
SMOLLM2 = Path(os.environ.get("DAK_MODEL_DIR", ROOT / "models/SmolLM2-135M-Instruct"))


def run_tool(model_dir, inputs):
    """What tokenize_lines says of each input, a text or {"ids": [...]}."""
    result = subprocess.run(
        [TOOL, model_dir],
        input="\n".join(json.dumps(item) for item in inputs) + "\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stderr
    outputs = [json.loads(line) for line in result.stdout.split("\n") if line]
    assert len(outputs) == len(inputs)
    return outputs


def expected_text(tokenizer, ids, skip):
    """The package's decode(), but for one flaw of its own: a special token that the normalizer
    changes is not skipped."""
    if skip:
        decoder = tokenizer.get_added_tokens_decoder()
        ids = [i for i in ids if i not in decoder or not decoder[i].special]
    return tokenizer.decode(ids, skip_special_tokens=False)


def check_decoding(tokenizer, ids, output):
    for skip, text, stream in [(False, "text", "stream"), (True, "text_skipped", "stream_skipped")]:
        assert output[text] == expected_text(tokenizer, ids, skip), ids
        assert "".join(output[stream]) == output[text], ids


def check_family(tokenizer, model_dir):
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    lines = corpus(added)
    encoded = tokenizer.encode_batch(lines)
    plain = tokenizer.encode_batch(lines, add_special_tokens=False)
    for line, reference, reference_plain, output in zip(
        lines, encoded, plain, run_tool(model_dir, lines)
    ):
        assert output["ids"] == reference.ids, repr(line)
        assert output["ids_plain"] == reference_plain.ids, repr(line)
        check_decoding(tokenizer, reference.ids, output)


def check_random_ids(tokenizer, model_dir):
    """Sequences that no text encodes to: characters cut in two, special tokens anywhere."""
    source = random.Random(3)
    size = tokenizer.get_vocab_size()
    special = list(tokenizer.get_added_tokens_decoder())
    short = [
        i
        for i in range(size)
        if len(tokenizer.id_to_token(i) or "") == 1
        or (tokenizer.id_to_token(i) or "").startswith("<0x")
    ]
    sequences = []
    for _ in range(1000):
        pool = source.choice([range(size), special + short, short])
        sequences.append([source.choice(pool) for _ in range(source.randint(0, 20))])
    for ids, output in zip(sequences, run_tool(model_dir, [{"ids": ids} for ids in sequences])):
        check_decoding(tokenizer, ids, output)


@pytest.mark.parametrize("family", FAMILIES)
def test_family_equals_package(family, tmp_path):
    tokenizer = FAMILIES[family]()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    check_family(tokenizer, tmp_path)
    check_random_ids(tokenizer, tmp_path)


def test_older_merges_form(tmp_path):
    """Files written before merges became pairs."""
    tokenizer = FAMILIES["llama3"]()
    file = json.loads(tokenizer.to_str())
    file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    check_family(tokenizer, tmp_path)


def test_gpt2_files(tmp_path):
    """OPT as its repositories have it: no tokenizer.json."""
    tokenizer = FAMILIES["opt"]()
    model = json.loads(tokenizer.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = ["#version: 0.2"] + [" ".join(pair) for pair in model["merges"]]
    (tmp_path / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")
    config = {"bos_token": "</s>", "unk_token": "<unk>", "pad_token": {"content": "<pad>"}}
    config |= {"eos_token": "<s>", "add_bos_token": True, "add_prefix_space": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    lines = [line for line in corpus(["</s>", "<pad>"]) if "<mask>" not in line]
    for line, output in zip(lines, run_tool(tmp_path, lines)):
        assert output["ids"] == tokenizer.encode(line).ids, repr(line)


# What tells characters apart, asked of every character of Unicode 3.2: later versions changed none.
CLASSES = [
    r"\s",
    r"\w",
    r"[\w]",
    r"\d",
    r"\p{L}",
    r"\p{N}",
    r"\p{P}",
    r"\p{S}",
    r"\p{M}",
    r"\p{Lu}",
]
CLASSES += [r"[[:punct:]]", r"[[:space:]]", r"(?i:s)", r"(?i:[a-z])", r"[^\s\p{L}\p{N}]"]


@pytest.mark.parametrize("pattern", CLASSES)
def test_character_classes(pattern, tmp_path):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.normalizer = normalizers.Replace(Regex(pattern), "#")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    lines = ["é".join(block) for block in assigned_characters()]
    for line, output in zip(lines, run_tool(tmp_path, lines)):
        reference = tokenizer.decode(tokenizer.encode(line).ids)
        assert output["text"] == reference


@pytest.mark.skipif(not SMOLLM2.exists(), reason=f"{SMOLLM2} is made by `make demo`")
def test_smollm2_equals_package():
    tokenizer = Tokenizer.from_file(str(SMOLLM2 / "tokenizer.json"))
    check_family(tokenizer, SMOLLM2)
    check_random_ids(tokenizer, SMOLLM2)
