"""Our chat templates against jinja2 set up as Hugging Face transformers does: the same text, and an
error wherever jinja2 raises one."""

import json
import os
import subprocess
from pathlib import Path

import chat_templates
import jinja_reference
import jinja_snippets
import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DAK_BUILD_DIR", ROOT / "build"))
TOOL = BUILD / "tests/model/chat/render_templates"
SMOLLM2 = ROOT / "models/SmolLM2-135M-Instruct/tokenizer_config.json"

# What we refuse by name though Python could do it.
REFUSALS = ["not supported", "cannot print", "is not allowed", "expected an expression"]


def render_all(cases):
    """The tool's replies to (template, variables) pairs."""
    requests = "".join(json.dumps({"template": template, "variables": variables}) + "\n"
                       for template, variables in cases)
    result = subprocess.run([TOOL], input=requests, capture_output=True, text=True,
                            encoding="utf-8")
    assert result.returncode == 0, result.stderr
    replies = [json.loads(line) for line in result.stdout.split("\n") if line]
    assert len(replies) == len(cases)
    return replies


def agrees(expected, reply, may_refuse):
    error = reply.get("error")
    if error is not None and "\n" in error:
        return False
    if expected.error is not None:
        return error is not None
    if error is None:
        return reply["text"] == expected.text
    return may_refuse and any(reason in error for reason in REFUSALS)


def compare(cases, may_refuse=False):
    replies = render_all(cases)
    wrong = []
    refused = 0
    for (template, variables), reply in zip(cases, replies):
        expected = jinja_reference.render(template, variables)
        refused += expected.error is None and "error" in reply
        if not agrees(expected, reply, may_refuse):
            wrong.append(f"{template!r}\n  expected {expected}\n  got {reply}")
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:\n" + "\n".join(wrong[:20])
    return refused


@pytest.mark.parametrize("family", chat_templates.FAMILIES)
def test_family(family):
    cases = [(template, variables) for name, template, variables in chat_templates.cases()
             if name.startswith(family + "/")]
    compare(cases)
    rendered = [jinja_reference.render(*case) for case in cases]
    assert sum(outcome.error is None for outcome in rendered) >= 10


def test_raised_messages_come_through():
    cases = [("{{ raise_exception('Turns must ' ~ 'alternate') }}", {})]
    assert "Turns must alternate" in render_all(cases)[0]["error"]


def test_snippets():
    cases = [(snippet, jinja_snippets.VARIABLES) for snippet in jinja_snippets.snippets()]
    assert len(cases) > 15000
    refused = compare(cases, may_refuse=True)
    assert refused < len(cases) // 20, f"{refused} of {len(cases)} refused"


def test_smollm2():
    if not SMOLLM2.exists():
        pytest.skip("the model folder is not there; `make demo` fetches it")
    template = json.loads(SMOLLM2.read_text(encoding="utf-8"))["chat_template"]
    compare([(template, {**variables, "bos_token": "<|im_start|>"})
             for name, _, variables in chat_templates.cases() if name.startswith("chatml/")])
