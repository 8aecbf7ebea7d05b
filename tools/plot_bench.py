#!/usr/bin/env python3
"""Draws the rows of `dak bench --json`: effective bandwidth and time per token over the offload ratio.

Usage: tools/plot_bench.py OUT.svg ROWS.json     (needs matplotlib; the ending chooses the format)

Ratios are on a logarithmic axis, left of which lies 0. One line for each transport and policy; the
dashed one is light speed: what HBM and the link allow with the better transport, maths aside.
"""

import argparse
import json
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams.update({"svg.hashsalt": "dak", "svg.fonttype": "none", "font.size": 9})
import matplotlib.pyplot as plt

COLORS = {"direct": "#0072b2", "staged": "#d55e00", "auto": "#009e73"}


def name_of(row, rows):
    name = row["asked_transport"]
    if len({other["policy"] for other in rows}) > 1:
        name += ", " + row["policy"]
    return name


def lines_of(rows):
    """{name: [(ratio in %, row)]}; what needs no transport, ratio 0, belongs to all lines."""
    lines = defaultdict(list)
    for row in rows:
        if row["ratio"] > 0:
            lines[name_of(row, rows)].append(row)
    local = [row for row in rows if row["ratio"] == 0]
    return {name: sorted(local + line, key=lambda row: row["ratio"])
            for name, line in lines.items()}


def light_speed(rows):
    best = {}
    for row in rows:
        key = round(row["ratio"], 4)
        if key not in best or row["light_speed_ms"] < best[key]["light_speed_ms"]:
            best[key] = row
    return [best[key] for key in sorted(best)]


def draw(report, out):
    rows = report["rows"]
    first = rows[0]
    least = min(row["ratio"] for row in rows if row["ratio"] > 0) * 100
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.6), constrained_layout=True)
    bytes_of = lambda row: row["eb_gbps"] * row["tpot_ms"]
    for panel, value, light, label in (
            (panels[0], lambda row: row["eb_gbps"],
             lambda row: bytes_of(row) / row["light_speed_ms"], "effective bandwidth, GB/s"),
            (panels[1], lambda row: row["tpot_ms"], lambda row: row["light_speed_ms"],
             "time per token, ms")):
        speed = light_speed(rows)
        panel.plot([100 * row["ratio"] for row in speed], [light(row) for row in speed],
                   color="#999999", linestyle="--", label="light speed")
        for name, line in lines_of(rows).items():
            style = dict(marker="o", markersize=3.5, color=COLORS.get(name.split(",")[0]))
            if "uniform" in name:
                style.update(linestyle=":", markerfacecolor="none")
            if name.startswith("auto"):
                style.update(linestyle="none", markersize=8, markerfacecolor="none")
            panel.plot([100 * row["ratio"] for row in line], [value(row) for row in line],
                       label=name, **style)
        panel.set_xscale("symlog", linthresh=least, linscale=0.3)
        values = [value(row) for row in rows]
        if max(values) > 5 * min(values):
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0)
        most = max(row["ratio"] for row in rows) * 100
        panel.set_xlim(0, 1.1 * most)
        ticks = [tick for tick in (0, 0.25, 0.5, 1, 2, 3, 5, 10, 25, 50, 100)
                 if tick == 0 or least <= tick <= most]
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
        panel.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
        panel.set_xlabel("offload ratio, %")
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
    panels[0].legend(frameon=False)
    figure.suptitle(f"{first['model']}, batch {first['batch']}, prompt {first['prompt']}, "
                    f"remote tier {first['tier']}, {report['gpu']}")
    figure.savefig(out, metadata={"Date": None} if out.endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("rows")
    arguments = parser.parse_args()
    with open(arguments.rows) as file:
        report = json.load(file)
    if not any(row["ratio"] > 0 for row in report.get("rows", [])):
        parser.error(f"{arguments.rows}: no rows with anything remote")
    draw(report, arguments.out)


if __name__ == "__main__":
    main()
