#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds a model in an engine of another project and runs loads on it. compare.py starts it with the engine's Python.

    resident.py ENGINE MODEL_DIR --threads=N --vocab=N

ENGINE is openvino or vllm: the class Peer of ENGINE_peer.py can add a request and compute a step.

Writes {"version": ...} when the model is loaded. Then it reads a line of JSON for each load, {"lengths": [[prompt
tokens, output tokens], ...], "clients": N, "shared": N, "seed": N}, and answers with a line of figures or {"error":
...}. It ends with its input. What the engine itself prints goes to the error output.
"""

import argparse
import importlib
import json
import os
import pathlib
import sys

from closed_loop import ClosedLoop
from work import prompts


def run_load(engine, load, vocab_size):
    lengths = [length for length, _ in load["lengths"]]
    outputs = [output for _, output in load["lengths"]]
    texts = prompts(lengths, load["shared"], vocab_size, load["seed"])
    if load["shared"]:  # The engine computes the common prefix before, and keeps it in its prefix cache.
        ClosedLoop(engine, [texts[0][:load["shared"]] + [1]], [2], 1).run()
    return ClosedLoop(engine, texts, outputs, load["clients"]).run()


def answer(engine, line, vocab_size):
    try:
        return run_load(engine, json.loads(line), vocab_size)
    except Exception as error:  # The engine is not ours: any of its errors is the answer to this load.
        return {"error": repr(error)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--vocab", type=int, required=True)
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    engine = importlib.import_module(f"{options.engine}_peer").Peer(options.model, options.threads)
    print(json.dumps({"version": engine.version}), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(engine, line, options.vocab)), file=answers)


if __name__ == "__main__":
    main()
