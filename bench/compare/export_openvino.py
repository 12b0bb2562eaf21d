#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a checkpoint into OpenVINO's format: export_openvino.py MODEL_DIR [...]

Writes MODEL_DIR-openvino-bf16, -int8 and -int4 beside each folder. The first one stores float16, because the format has
no bfloat16; the engine converts it when it loads the model. The weights of the others are rounded as OpenVINO does by
default: 8 bits with a zero for each channel, or 4 bits with a scale for each group of 128, where the embedding and the
output matrix have 8 bits. Needs optimum-intel and nncf.
"""

import pathlib
import shutil
import subprocess
import sys

import nncf
import openvino

MODEL_FILE = "openvino_model.xml"
ROUNDINGS = {"int8": {"mode": nncf.CompressWeightsMode.INT8_ASYM},
             "int4": {"mode": nncf.CompressWeightsMode.INT4_SYM, "group_size": 128, "ratio": 1.0}}


def export(model):
    unrounded = model.with_name(f"{model.name}-openvino-bf16")
    subprocess.run([pathlib.Path(sys.executable).with_name("optimum-cli"), "export", "openvino", "--model", model,
                    "--task", "text-generation-with-past", "--weight-format", "fp16", unrounded], check=True)
    for name, rounding in ROUNDINGS.items():
        folder = model.with_name(f"{model.name}-openvino-{name}")
        shutil.copytree(unrounded, folder, ignore=shutil.ignore_patterns("openvino_model.*"), dirs_exist_ok=True)
        graph = nncf.compress_weights(openvino.Core().read_model(unrounded / MODEL_FILE), **rounding)
        openvino.save_model(graph, folder / MODEL_FILE, compress_to_fp16=False)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for model in sys.argv[1:]:
        export(pathlib.Path(model))


if __name__ == "__main__":
    main()
