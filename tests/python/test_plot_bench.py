"""tools/plot_bench.py: which rows become which lines. Needs matplotlib."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import plot_bench  # noqa: E402


def row(ratio, transport, policy="greedy", light=1.0):
    return {"model": "m", "batch": 8, "prompt": 32, "tier": "host", "ratio": ratio,
            "asked_transport": transport, "policy": policy, "tpot_ms": 2.0, "eb_gbps": 100.0,
            "light_speed_ms": light}


ROWS = [row(0, "direct"), row(0.1, "direct", light=1.5), row(0.1, "staged", light=1.2),
        row(0.01, "direct")]


def test_ratio_0_belongs_to_every_line():
    lines = plot_bench.lines_of(ROWS)
    assert {name: [r["ratio"] for r in line] for name, line in lines.items()} == {
        "direct": [0, 0.01, 0.1], "staged": [0, 0.1]}


def test_policies_are_named_where_there_are_two():
    lines = plot_bench.lines_of([row(0.1, "direct"), row(0.1, "direct", "uniform")])
    assert sorted(lines) == ["direct, greedy", "direct, uniform"]


def test_light_speed_is_that_of_the_better_transport():
    assert [r["light_speed_ms"] for r in plot_bench.light_speed(ROWS)] == [1.0, 1.0, 1.2]


def test_draws(tmp_path):
    out = tmp_path / "plot.svg"
    plot_bench.draw({"gpu": "GPU", "rows": ROWS}, str(out))
    assert out.read_text().count("light speed") >= 1
