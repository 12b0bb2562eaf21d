#!/usr/bin/env python3
"""Writes the goldens in tests/golden/compressed_tensors: compressed_tensors_goldens.py OUTPUT_FOLDER

Needs the packages compressed-tensors (0.20.0), torch for CPUs and safetensors. The source is the small random model
tests/golden/models/llama2. int8.safetensors has its matrices as the package compresses them under the preset W8A8, and
dequantized.safetensors has what the package makes of them again.
"""

import json
import pathlib
import sys

import torch
from compressed_tensors.compressors.naive_quantized.base import IntQuantizationCompressor
from compressed_tensors.quantization import preset_name_to_scheme
from safetensors.torch import load_file, save_file

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/models/llama2"


def compress(tensors):
    """Returns the tensors of the checkpoint, and those of the same model in float32."""
    scheme = preset_name_to_scheme("W8A8", ["Linear"])
    stored, dequantized = {}, {}
    for name, tensor in tensors.items():
        if "_proj.weight" not in name:
            stored[name] = dequantized[name] = tensor
            continue
        scale = tensor.abs().amax(1, keepdim=True) / 127.5
        zero_point = torch.zeros_like(scale, dtype=torch.int8)
        plain = {"weight": tensor.clone(), "weight_scale": scale, "weight_zero_point": zero_point}
        compressed = IntQuantizationCompressor.compress(plain, scheme)
        for part in ("weight", "weight_scale"):
            stored[name.removesuffix("weight") + part] = compressed[part].contiguous()
        dequantized[name] = IntQuantizationCompressor.decompress(dict(compressed), scheme)["weight"].float()
    return stored, dequantized


def main():
    output = pathlib.Path(sys.argv[1])
    output.mkdir(parents=True, exist_ok=True)
    stored, dequantized = compress(load_file(SOURCE / "model.safetensors"))
    save_file(stored, output / "int8.safetensors")
    save_file(dequantized, output / "dequantized.safetensors")
    scheme = preset_name_to_scheme("W8A8", ["Linear"])
    config = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": json.loads(scheme.model_dump_json())},
    }
    (output / "quantization_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
