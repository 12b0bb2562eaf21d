#!/usr/bin/env python3
"""Writes the goldens in tests/golden/compressed_tensors: compressed_tensors_goldens.py OUTPUT_FOLDER

Needs the packages compressed-tensors (0.20.0), torch for CPUs and safetensors. The source is the small random model
tests/golden/models/llama2. int8.safetensors has its matrices as the package compresses them under the preset W8A8, and
dequantized.safetensors has what the package makes of them again. packed.safetensors has one random matrix under the
presets W4A16 (symmetric) and W4A16_ASYM (asymmetric), each with what the package makes of it again.
"""

import json
import pathlib
import sys

import torch
from compressed_tensors.compressors.naive_quantized.base import IntQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
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


def pack(preset, prefix):
    """Returns the tensors of a random matrix of 4 bits, and the same matrix in float32."""
    scheme = preset_name_to_scheme(preset, ["Linear"])
    torch.manual_seed(0)
    weight = torch.randn(24, 256)
    groups = weight.view(24, -1, scheme.weights.group_size)
    if scheme.weights.symmetric:
        scale = groups.abs().amax(-1) / 7.5
        zero_point = torch.zeros_like(scale).to(torch.int8)
    else:
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scale = (high - low) / 15
        zero_point = (-8 - torch.round(low / scale)).clamp(-8, 7).to(torch.int8)
    plain = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero_point}
    stored = PackedQuantizationCompressor.compress(plain, scheme)
    again = PackedQuantizationCompressor.decompress(dict(stored), scheme)["weight"].float()
    return {prefix + name: tensor.contiguous() for name, tensor in {**stored, "dequantized": again}.items()}


def main():
    output = pathlib.Path(sys.argv[1])
    output.mkdir(parents=True, exist_ok=True)
    stored, dequantized = compress(load_file(SOURCE / "model.safetensors"))
    save_file(stored, output / "int8.safetensors")
    save_file(dequantized, output / "dequantized.safetensors")
    save_file({**pack("W4A16", "symmetric."), **pack("W4A16_ASYM", "asymmetric.")}, output / "packed.safetensors")
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
