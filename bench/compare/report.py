#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of results that compare.py has written: report.py RESULTS.jsonl [...]

Figures are medians of the rounds with their range. A ratio is the median over the rounds of the ratios within a round;
above 1 is always better for Quire. "Quire / it" compares with the Quire of the same width, "over bf16" compares an
engine with the same project's bfloat16. The probes are the medians of what was measured before and after the runs of
the line: arithmetic in registers (10^12 operations per second) and memory (GB/s). The last column is the largest share
of the machine that other processes took during one of the runs.
"""

import json
import pathlib
import statistics
import sys

from rows import ROWS

HEADER = ("| row | figure | engine | median [range] | Quire / it [range] | over bf16 [range] | registers, 10^12/s | "
          "memory, GB/s | foreign |\n|---|---|---|---:|---:|---:|---:|---:|---:|")
QUANTIZED = ("int8", "int4")
# The instructions that can multiply in a width. On some machines avx512_bf16 is slower than avx512_fma.
FLOATS = ("avx512_fma", "avx2_fma")
PROBES = {"bf16": ("amx_bf16", "avx512_bf16", *FLOATS), "int8": ("amx_int8", "vnni_int8", *FLOATS),
          "int4": ("amx_int8", "vnni_int8", *FLOATS)}


def number(value):
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def ratio(value):
    return f"{value:.2f}"


def percent(value):
    return f"{100 * value:.0f} %"


def with_range(values, text):
    """Returns the median and the range; `text` formats a value."""
    if not values:
        return ""
    return f"{text(statistics.median(values))} [{text(min(values))} .. {text(max(values))}]"


def register_rate(probes, width):
    """Returns 10^9 operations per second of the fastest instruction for the width, or None if none was measured."""
    return max((probes[name] for name in PROBES[width] if name in probes), default=None)


class Line:
    """The runs of one engine in one row."""

    def __init__(self, runs):
        self.engine, self.project, self.width = runs[0]["engine"], runs[0]["project"], runs[0]["width"]
        self.runs = {(run["call"], run["round"]): run for run in runs}

    def values(self, key):
        """Returns {(call of compare.py, round): value}."""
        return {place: run["figures"][key] for place, run in self.runs.items() if key in run["figures"]}

    def probe(self, name):
        """Returns what the probe measured before and after all runs."""
        rates = [register_rate(probes, self.width) if name == "registers" else probes.get(name)
                 for run in self.runs.values() for probes in run["probes"]]
        return [rate for rate in rates if rate is not None]

    def foreign(self):
        return max(run["foreign"] for run in self.runs.values())


def ratios(figure, ours, theirs):
    """Returns the ratios of the rounds that both have; above 1 means that ours is better. Shares have none."""
    if figure.is_share:
        return []
    pairs = [(ours[i], theirs[i]) for i in sorted(ours) if i in theirs]
    if not figure.higher_is_better:
        pairs = [(second, first) for first, second in pairs]
    return [first / second for first, second in pairs if first and second]


def best_of(figure, lines):
    """Returns the best value of any of the lines for each round."""
    best, choice = {}, max if figure.higher_is_better else min
    for line in lines:
        for place, value in line.values(figure.key).items():
            best[place] = choice(best.get(place, value), value)
    return best


def _figure_lines(row, figure, lines):
    text = percent if figure.is_share else number
    ours = {line.width: line for line in lines if line.project == "Quire"}
    for line in lines:
        values = line.values(figure.key)
        if not values:
            continue
        beside = over = []
        if line.project != "Quire" and line.width in ours:
            beside = ratios(figure, ours[line.width].values(figure.key), values)
        base = next((other for other in lines if other.project == line.project and other.width == "bf16"), None)
        if line.width != "bf16" and base:
            over = ratios(figure, values, base.values(figure.key))
        rates, memory = line.probe("registers"), line.probe("bandwidth")
        yield (f"| {row.name} | {figure.title} | {line.engine} | {with_range(list(values.values()), text)} | "
               f"{with_range(beside, ratio)} | {with_range(over, ratio)} | "
               f"{f'{statistics.median(rates) / 1e3:.2f}' if rates else ''} | "
               f"{f'{statistics.median(memory):.1f}' if memory else ''} | {percent(line.foreign())} |")
    quantized = [line for line in lines if line.width in QUANTIZED]
    best_ours = best_of(figure, [line for line in quantized if line.project == "Quire"])
    best_theirs = best_of(figure, [line for line in quantized if line.project != "Quire"])
    beside = ratios(figure, best_ours, best_theirs)
    if beside:
        yield (f"| {row.name} | {figure.title} | best of the quantized peers, beside the best of Quire's | "
               f"{with_range(list(best_theirs.values()), text)} | {with_range(beside, ratio)} | | | | |")


def row_lines(row, runs):
    """Returns the lines of the table for the runs of this row."""
    engines = dict.fromkeys(run["engine"] for run in runs)
    lines = [Line([run for run in runs if run["engine"] == engine]) for engine in engines]
    return [text for figure in row.figures for text in _figure_lines(row, figure, lines)]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    entries = [json.loads(line) for name in sys.argv[1:] for line in pathlib.Path(name).read_text().splitlines()]
    for entry in entries:
        if "machine" in entry:
            print(f"{entry['machine']}; " + ", ".join(entry["versions"].values()), end="\n\n")
    print(HEADER)
    for row in ROWS:
        for text in row_lines(row, [entry for entry in entries if entry.get("row") == row.name]):
            print(text)


if __name__ == "__main__":
    main()
