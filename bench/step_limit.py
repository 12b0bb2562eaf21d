#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do callers see with different limits of the step time?

Starts a worker and a manager for each variant in turn, and runs the mix of requests of bench/compare in a closed loop:
prompts of 32 to 512 tokens and outputs of 16 to 256, most of them short. A variant is a name and flags of the manager.
The variants take turns in each round, so that whatever else the machine does hits all of them. Prints medians over the
rounds, and the median over the rounds of each ratio to the first variant.

    bench/step_limit.py "100 ms:--max-step-ms=100" "300 ms:--max-step-ms=300"
    bench/step_limit.py "old:MANAGER=/tmp/quire-manager" "new:"          # another program as the manager
    bench/step_limit.py --model=/models/Qwen3-0.6B "new:"                # the CPU worker instead of a simulated one
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/compare"))
from engines import output_of, processes, wait_until  # noqa: E402
from work import chat_requests  # noqa: E402

FIGURES = (("total_token_throughput", "tokens/s"), ("median_ttft_ms", "TTFT p50"), ("p99_ttft_ms", "TTFT p99"),
           ("median_itl_ms", "ITL p50"), ("p99_itl_ms", "ITL p99"))


class Variant:
    def __init__(self, text):
        self.name, _, flags = text.partition(":")
        self.flags = flags.split()
        self.manager = None
        if self.flags and self.flags[0].startswith("MANAGER="):
            self.manager = self.flags.pop(0).removeprefix("MANAGER=")
        self.reports = []


def run(options, variant, trace):
    with tempfile.TemporaryDirectory() as folder:
        endpoint, worker = f"unix:{folder}/manager", f"unix:{folder}/worker"
        if options.model:
            device = [f"--model={options.model}", f"--threads={options.threads}"]
        else:
            times = pathlib.Path(folder, "times.yaml")
            times.write_text("".join(f"{line.replace('=', ': ')}\n" for line in options.step_times.split(",")))
            device = ["--device=simulated", f"--model={ROOT / 'models/tales'}", f"--simulated-step-times={times}"]
        load = [options.binaries / "quirectl", f"--endpoint={endpoint}", "--output=json", "bench"]

        def is_ready():
            return '"completed":1,' in output_of(load + ["--requests=1", "--input-tokens=64", "--output-tokens=4"],
                                                 accept_failure=True)

        with processes([options.binaries / "quire-worker", *device, f"--listen={worker}", "--metrics-listen=",
                        "--num-blocks=4096"],
                       [variant.manager or options.binaries / "quire-manager", f"--workers={worker}",
                        f"--listen={endpoint}", "--metrics-listen=", "--max-queue-wait=24h", *variant.flags]):
            wait_until(is_ready)
            report = json.loads(output_of(load + [f"--trace={trace}", f"--concurrency={options.clients}", "--seed=2"]))
    if report["completed"] != options.requests:
        raise RuntimeError(f"{report['completed']} of {options.requests} requests have ended")
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="+", type=Variant)
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--model", help="checkpoint for the CPU worker; without it the worker is simulated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--step-times", default="step=32ms,prefill_token=700us,decode_row=500us,context_token=1500ns",
                        help="times of the simulated worker; the default is like a model of 0.5 B parameters on two "
                             "cores with AMX")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "requests.csv")
        trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
            f"2024-01-01 00:00:00.0000000,{prompt},{output}\n" for prompt, output in chat_requests(options.requests)))
        for _ in range(options.rounds):
            for variant in options.variants:
                variant.reports.append(run(options, variant, trace))
                print(variant.name, *(f"{label} {variant.reports[-1][key]:.1f}" for key, label in FIGURES), sep=" | ",
                      flush=True)
    print("\n| variant | " + " | ".join(label for _, label in FIGURES) + " |\n|---" + "|---:" * len(FIGURES) + "|")
    for variant in options.variants:
        cells = []
        for key, _ in FIGURES:
            values = [report[key] for report in variant.reports]
            ratio = statistics.median(report[key] / first[key]
                                      for report, first in zip(variant.reports, options.variants[0].reports))
            cells.append(f"{statistics.median(values):.0f} [{min(values):.0f} .. {max(values):.0f}], {ratio:.2f} x")
        print(f"| {variant.name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
