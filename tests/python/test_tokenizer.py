"""Our tokenizer against the tokenizers package: the same ids and the same text, for every family's
pipeline, on a corpus of more than 6,000 lines."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tokenizer_corpus import corpus
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


@pytest.mark.skipif(not SMOLLM2.exists(), reason=f"{SMOLLM2} is made by `make demo`")
def test_smollm2_equals_package():
    tokenizer = Tokenizer.from_file(str(SMOLLM2 / "tokenizer.json"))
    check_family(tokenizer, SMOLLM2)
    check_random_ids(tokenizer, SMOLLM2)
