#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes written.safetensors in tests/golden/quantized: written_goldens.py OUTPUT_FOLDER QUIRE_QUANTIZE

Rounds tests/golden/models/llama2 with the program QUIRE_QUANTIZE, lets transformers load the checkpoints, and records
the logits of PROMPT in float32: `int8` and `int4` [tokens, vocabulary]; and one matrix: `int8.down_proj` and
`int4.down_proj`. With int8, transformers rounds the inputs of products as well.

Needs the packages transformers (5.24.0), compressed-tensors (0.17.1), torch for CPUs and safetensors.
compressed-tensors 0.19.0 and 0.20.0 cannot load zero points of pack-quantized into transformers 5.24.0, whoever has
written them: they expect them unpacked.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/models/llama2"
PROMPT = [1, 5, 17, 3, 90, 33, 2, 4, 4, 61]


def main():
    output, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    file = {}
    for width in ("int8", "int4"):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([program, f"--model={SOURCE}", f"--output={folder}", f"--width={width}"], check=True)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            with torch.no_grad():
                file[width] = model(torch.tensor([PROMPT])).logits[0].contiguous()
            file[f"{width}.down_proj"] = model.model.layers[0].mlp.down_proj.weight.detach().clone()
    save_file(file, output / "written.safetensors")


if __name__ == "__main__":
    main()
