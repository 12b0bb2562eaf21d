#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the same work on Quire and llama.cpp in turns, on this machine, and prints the ratios.

    compare.py --quire-bin=build/release/bin --llama-bin=DIR --models=DIR [--rows=REGEX] [--rounds=3] [--json=FILE]

The folder of the models has for each NAME a checkpoint NAME/ and NAME.gguf with the same weights (see to_gguf.py).
Every round runs Quire and then llama.cpp. The first round runs every mode of llama.cpp. The other rounds run only the
mode that was best in the row's first figure. The table has the medians of all rounds. The foreign share of a run is the
part of the machine's CPU time that other processes took meanwhile. A run whose foreign share exceeds --max-foreign is
repeated. With --reuse the runs of llama.cpp are taken from the JSON of an earlier call.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys

from engines import Llama, Quire
from quiet import ForeignShare, wait_for_idle
from rows import rows

MAX_TRIES = 4


def measure(run, options):
    """Returns (figures, foreign share) of one run. Of at most MAX_TRIES runs, it is the one with the smallest share."""
    best = None
    for _ in range(MAX_TRIES):
        wait_for_idle(options.idle_wait)
        with ForeignShare() as foreign:
            figures = run()
        if best is None or foreign.share < best[1]:
            best = (figures, foreign.share)
        if foreign.share <= options.max_foreign:
            break
    return best


class Side:
    """The runs of one engine or of one of its modes."""

    def __init__(self, name, run):
        self.name, self.run, self.figures, self.foreign = name, run, [], []

    def add(self, options):
        figures, foreign = measure(self.run, options)
        self.figures.append(figures)
        self.foreign.append(foreign)

    def median(self, key):
        return statistics.median(self.values(key)) if self.values(key) else None

    def values(self, key):
        return [figures[key] for figures in self.figures if key in figures]

    def report(self):
        return {"name": self.name, "runs": self.figures, "foreign_shares": self.foreign}


def run_row(row, options, earlier):
    """Returns (Quire, all modes of llama.cpp, the best of these or None)."""
    quire = Side("quire", row.quire)
    modes = [Side(name, run) for name, run in row.llama.items()]
    first = row.figures[0]
    sign = 1 if first.higher_is_better else -1
    best = None
    if earlier:
        for mode, report in zip(modes, earlier["llama"]):
            mode.figures, mode.foreign = report["runs"], report["foreign_shares"]
            best = mode if mode.name == earlier["best_mode"] else best
    for round_number in range(options.rounds):
        print(f"{row.name}: round {round_number + 1}", file=sys.stderr)
        quire.add(options)
        if earlier:
            continue
        for mode in modes if round_number == 0 else [best] if best else []:
            mode.add(options)
        best = max(modes, key=lambda mode: sign * mode.median(first.key)) if round_number == 0 and modes else best
    return quire, modes, best


def number(value):
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def table_lines(row, quire, best):
    for figure in row.figures:
        ours, theirs = quire.median(figure.key), best.median(figure.key) if best else None
        ratio = None
        if ours and theirs:
            ratio = ours / theirs if figure.higher_is_better else theirs / ours
        spreads = [f"{number(min(side.values(figure.key)))} .. {number(max(side.values(figure.key)))}"
                   if side and side.values(figure.key) else "-" for side in (quire, best)]
        foreign = max(quire.foreign + (best.foreign if best else []))
        yield (f"| {row.name} | {figure.title} | {number(ours)} [{spreads[0]}] | {number(theirs)} [{spreads[1]}] | "
               f"{'-' if ratio is None else f'{ratio:.2f}'} | {best.name if best else '-'} | {100 * foreign:.0f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire-bin", type=pathlib.Path, required=True)
    parser.add_argument("--llama-bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--rows", default="", help="regular expression; only rows whose name contains a match are run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--port", type=int, default=18080, help="port of llama-server")
    parser.add_argument("--max-foreign", type=float, default=0.04, help="largest share of other processes, 0 .. 1")
    parser.add_argument("--idle-wait", type=float, default=60, help="seconds to wait for an idle machine before a run")
    parser.add_argument("--reuse", type=pathlib.Path, help="JSON of an earlier call, for its runs of llama.cpp")
    parser.add_argument("--json", type=pathlib.Path, help="file to which all runs are written")
    options = parser.parse_args()
    quire = Quire(options.quire_bin, options.models, options.threads)
    llama = Llama(options.llama_bin, options.models, options.threads, options.port)
    earlier = {row["row"]: row for row in json.loads(options.reuse.read_text())} if options.reuse else {}
    report = []
    print("| row | figure | Quire [range] | llama.cpp [range] | ratio | mode of llama.cpp | largest foreign share |\n"
          "|---|---|---:|---:|---:|---|---:|", flush=True)
    for row in rows(quire, llama):
        if not re.search(options.rows, row.name):
            continue
        ours, modes, best = run_row(row, options, earlier.get(row.name))
        for line in table_lines(row, ours, best):
            print(line, flush=True)
        report.append({"row": row.name, "quire": ours.report(), "llama": [mode.report() for mode in modes],
                       "best_mode": best.name if best else None})
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
