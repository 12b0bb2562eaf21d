#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the goldens in tests/golden/quantized: quantized_goldens.py OUTPUT_FOLDER SOURCES

Small checkpoints that other software has packed, and what the same software reads back from them.

| format | packed and read back by |
|---|---|
| compressed-tensors | compressed-tensors 0.20.0 |
| GPTQ | gptqmodel 7.7.0; symmetric weights of 4 and 8 bits also by auto-gptq 0.7.1, and the bytes must be equal |
| AWQ | autoawq 0.2.9 |
| FP8 with blocks in the layout of DeepSeek | transformers 5.24.0 |

Also needs torch 2.15.0 for CPUs and safetensors. SOURCES has the unpacked archives of gptqmodel, auto-gptq and autoawq:
folders `gptqmodel`, `auto_gptq` and `awq`. auto-gptq and autoawq were written for older versions of transformers, so
only the modules that pack and unpack are imported.

Every file NAME.safetensors has the matrices of one decoder layer as a checkpoint has them. Beside them it has
`logits`, which transformers computes in float32 from the dequantized weights for the last tokens of PROMPT, and of
two matrices what was read back: `expected.k_proj.values`, `.zeros` and `.scales`, or `expected.k_proj.weight` for
formats that Quire dequantizes. plain.safetensors has the other tensors of all these models, and formats.json has the
quantization_config of each.
"""

import importlib
import json
import pathlib
import sys
import types

import torch
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config, LlamaConfig
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

CONFIG = LlamaConfig(
    architectures=["LlamaForCausalLM"],
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=4,
    vocab_size=96,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    tie_word_embeddings=True,
    bos_token_id=1,
    eos_token_id=2,
)
PROMPT = [1, 5, 17, 3, 90, 33, 2, 4, 4, 61]
NUM_LOGITS = 4
GROUP = 32
EXPECTED = ("k_proj", "down_proj")


def import_modules(sources):
    """Imports single modules of packages whose __init__ does not work with the transformers of today."""
    sys.path.insert(0, str(sources))
    for name in ("awq", "awq.modules", "awq.modules.linear", "awq.utils", "auto_gptq", "auto_gptq.nn_modules",
                 "auto_gptq.nn_modules.qlinear"):
        package = types.ModuleType(name)
        package.__path__ = [str(sources / name.replace(".", "/"))]
        sys.modules[name] = package
    return types.SimpleNamespace(
        gptq=importlib.import_module("gptqmodel.nn_modules.qlinear.torch").TorchLinear,
        gptq_convert=importlib.import_module("gptqmodel.utils.model").convert_gptq_v2_to_v1_format_module,
        gptq_config=importlib.import_module("gptqmodel").QuantizeConfig,
        auto_gptq=importlib.import_module("auto_gptq.nn_modules.qlinear.qlinear_cuda_old").QuantLinear,
        awq=importlib.import_module("awq.modules.linear.gemm").WQLinear_GEMM,
        awq_dequantize=importlib.import_module("awq.utils.packing_utils").dequantize_gemm,
    )


def random_model():
    """All numbers are bfloat16, and large enough for tokens and positions to matter."""
    generator = torch.Generator().manual_seed(3)
    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if tensor.dim() == 1:
                noise = 1 + 0.3 * noise
            elif "embed" not in name:
                noise = noise * 1.5 / tensor.shape[1] ** 0.5
            # The zero point of rows without a negative number is 0.
            if name.endswith("k_proj.weight"):
                noise[8:11] = noise[8:11].abs()
            tensor.copy_(noise.bfloat16().float())
    return model


def linear(weight):
    module = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    module.weight.data = weight.clone()
    return module


def round_groups(weight, bits, symmetric, groups):
    """Returns the rounded matrix, which packing does not round further, and scales and zero points [rows, groups].

    `groups` has the columns of each group.
    """
    largest = 2**bits - 1
    low = torch.stack([weight[:, columns].amin(1) for columns in groups], 1).clamp(max=0)
    high = torch.stack([weight[:, columns].amax(1) for columns in groups], 1).clamp(min=0)
    if symmetric:
        high = torch.maximum(high, -low)
        low = -high
    scale = ((high - low) / largest).half().float()
    zero = torch.full_like(scale, 2 ** (bits - 1)) if symmetric else torch.round(-low / scale)
    rounded = weight.clone()
    for i, columns in enumerate(groups):
        step, offset = scale[:, i:i + 1], zero[:, i:i + 1]
        rounded[:, columns] = step * ((weight[:, columns] / step + offset).round().clamp(0, largest) - offset)
    return rounded, scale, zero


class Gptq:
    """GPTQ as gptqmodel packs it. Of weights that are not symmetric, version 2 of the format is the internal one."""

    def __init__(self, modules, bits, symmetric, version, group=GROUP, desc_act=False):
        self.modules, self.bits, self.symmetric, self.version = modules, bits, symmetric, version
        self.group, self.desc_act = group, desc_act
        self.config = {
            "quant_method": "gptq",
            "bits": bits,
            "group_size": group,
            "desc_act": desc_act,
            "sym": symmetric,
            "lm_head": False,
            "pack_dtype": "int32",
            "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
            "meta": {"quantizer": ["gptqmodel:7.7.0"]},
        }

    @torch.inference_mode()
    def __call__(self, name, weight):
        rows, cols = weight.shape
        group = cols if self.group == -1 else self.group
        index = torch.arange(cols) // group
        if self.desc_act:
            index = index[torch.randperm(cols, generator=torch.Generator().manual_seed(cols))]
        columns = [torch.nonzero(index == i).flatten() for i in range(cols // group)]
        weight, scale, zero = round_groups(weight, self.bits, self.symmetric, columns)
        module = self.modules.gptq(self.bits, group, self.symmetric, self.desc_act, cols, rows)
        module.pack(linear(weight), scale, zero, index.int())
        module.post_init()
        dequantized = module.dequantize_weight().T.contiguous()
        expected = {"weight": dequantized}
        if self.bits == 4:
            zeros, scales = self.unpacked_zeros(module), module.scales.clone()
            module.scales.fill_(1)
            values = module.dequantize_weight().T + zeros.T[:, index]
            module.scales.copy_(scales)
            expected = {"values": values.byte(), "zeros": zeros.T.byte(), "scales": scales.T.float()}
        if self.version == 1:
            self.modules.gptq_convert(module, self.modules.gptq_config(bits=self.bits))
        stored = {part: getattr(module, part) for part in ("qweight", "qzeros", "scales", "g_idx")}
        if self.symmetric and self.version == 1 and not self.desc_act:
            self.check_with_auto_gptq(weight, scale, zero, stored, dequantized)
        return stored, expected, dequantized

    @staticmethod
    def unpacked_zeros(module):
        """The zero points [groups, rows]: what weights of 0 become with scales of 1."""
        qweight, scales = module.qweight.clone(), module.scales.clone()
        module.qweight.zero_()
        module.scales.fill_(1)
        groups = module.g_idx.long()
        first = [int(torch.nonzero(groups == i)[0]) for i in range(int(groups.max()) + 1)]
        zeros = -module.dequantize_weight()[first]
        module.qweight.copy_(qweight)
        module.scales.copy_(scales)
        return zeros

    def check_with_auto_gptq(self, weight, scale, zero, stored, dequantized):
        rows, cols = weight.shape
        module = self.modules.auto_gptq(self.bits, self.group, cols, rows, bias=False)
        module.pack(linear(weight), scale.clone(), zero.clone(), None)
        for part in ("qweight", "qzeros", "scales"):
            assert torch.equal(getattr(module, part), stored[part]), part
        assert torch.equal(module(torch.eye(cols)).T.half(), dequantized)


class Awq:
    def __init__(self, modules):
        self.modules = modules
        self.config = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}

    def __call__(self, name, weight):
        columns = [torch.arange(start, start + GROUP) for start in range(0, weight.shape[1], GROUP)]
        weight, scale, zero = round_groups(weight, 4, False, columns)
        module = self.modules.awq.from_linear(linear(weight), 4, GROUP, False, scale.T.contiguous(),
                                              zero.T.contiguous())
        stored = {part: getattr(module, part) for part in ("qweight", "qzeros", "scales")}

        def dequantize(qweight, scales):
            return self.modules.awq_dequantize(qweight, module.qzeros, scales, 4, GROUP)

        ones = torch.ones_like(module.scales)
        zeros = -dequantize(torch.zeros_like(module.qweight), ones)[::GROUP]
        values = dequantize(module.qweight, ones) + zeros.repeat_interleave(GROUP, 0)
        expected = {"values": values.T.byte(), "zeros": zeros.T.byte(), "scales": module.scales.T.float()}
        return stored, expected, dequantize(module.qweight, module.scales).T


class CompressedTensors:
    def __init__(self, form, weights, inputs=None, dtype=torch.bfloat16):
        """`dtype` is the type of the model, and so of the scales."""
        self.dtype = dtype
        arguments = QuantizationArgs(**weights)
        self.scheme = QuantizationScheme(
            targets=["Linear"], weights=arguments, input_activations=inputs and QuantizationArgs(**inputs))
        self.form = form
        self.config = {
            "quant_method": "compressed-tensors",
            "format": form,
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {"group_0": json.loads(self.scheme.model_dump_json())},
        }

    def limits(self, weight):
        """The smallest and the largest number of the parts of a matrix that share a scale."""
        arguments = self.scheme.weights
        rows, cols = weight.shape
        if arguments.strategy == "tensor":
            return weight.amin().reshape(1), weight.amax().reshape(1)
        if arguments.strategy == "channel":
            return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
        if arguments.strategy == "group":
            parts = weight.view(rows, -1, arguments.group_size)
            return parts.amin(-1), parts.amax(-1)
        height, width = arguments.block_structure
        blocks = [[weight[row:row + height, col:col + width] for col in range(0, cols, width)]
                  for row in range(0, rows, height)]
        return (torch.stack([torch.stack([block.amin() for block in line]) for line in blocks]),
                torch.stack([torch.stack([block.amax() for block in line]) for line in blocks]))

    def __call__(self, name, weight):
        weight = weight.to(self.dtype)
        scale, zero = calculate_qparams(*self.limits(weight), self.scheme.weights)
        is_packed = self.form == "pack-quantized"
        compressor = PackedQuantizationCompressor if is_packed else NaiveQuantizationCompressor
        plain = {"weight": weight.clone(), "weight_scale": scale, "weight_zero_point": zero}
        stored = compressor.compress(plain, self.scheme)
        dequantized = compressor.decompress(dict(stored), self.scheme)["weight"]
        expected = {"weight": dequantized}
        if is_packed and self.scheme.weights.num_bits == 4:
            # Products by numbers of 4 bits do not round the weights to the type of the scales.
            exact = {**stored, "weight_scale": scale.float()}
            dequantized = compressor.decompress(exact, self.scheme)["weight"]
            zeros = torch.zeros_like(scale, dtype=torch.int8)
            if "weight_zero_point" in stored:
                zeros = unpack_from_int32(stored["weight_zero_point"], 4, scale.shape, packed_dim=0)
            values = unpack_from_int32(stored["weight_packed"], 4, weight.shape)
            expected = {"values": (values + 8).byte(), "zeros": (zeros + 8).byte(), "scales": scale.float()}
        return stored, expected, dequantized


class BlockFp8:
    """Blocks of FP8 as transformers writes them, under the names of DeepSeek."""

    def __init__(self, block):
        config = FineGrainedFP8Config(weight_block_size=block)
        self.quantizer = types.SimpleNamespace(quantization_config=config)
        self.config = {key: value for key, value in config.to_dict().items() if value is not None}

    def __call__(self, name, weight):
        # The methods that convert one matrix.
        stored = Fp8Quantize(self.quantizer)._quantize_one("weight", weight)
        stored = {key.removeprefix("."): tensor for key, tensor in stored.items()}
        dequantized = Fp8Dequantize(self.quantizer)._dequantize_one(
            stored["weight"], next(v for k, v in stored.items() if k.endswith("scale_inv")), torch.bfloat16)
        return stored, {"weight": dequantized}, dequantized


def formats(modules):
    def packed(bits, strategy, symmetric, group=None, dtype=torch.bfloat16):
        return CompressedTensors("pack-quantized", dict(
            num_bits=bits, type="int", strategy=strategy, symmetric=symmetric, group_size=group), dtype=dtype)

    def int8(strategy):
        inputs = dict(num_bits=8, type="int", strategy="token", symmetric=True, dynamic=True)
        return CompressedTensors("int-quantized", dict(num_bits=8, type="int", strategy=strategy, symmetric=True),
                                 inputs, torch.float32)

    def fp8(strategy, block=None):
        inputs = dict(num_bits=8, type="float", strategy="token", symmetric=True, dynamic=True)
        return CompressedTensors("float-quantized", dict(
            num_bits=8, type="float", strategy=strategy, symmetric=True, block_structure=block), inputs)

    return {
        "int8_channel": int8("channel"),
        "int8_tensor": int8("tensor"),
        "packed4_group": packed(4, "group", True, GROUP),
        "packed4_group_asymmetric": packed(4, "group", False, GROUP),
        "packed4_channel": packed(4, "channel", True),
        "packed4_channel_asymmetric": packed(4, "channel", False),
        "packed8_group": packed(8, "group", True, GROUP),
        "packed8_channel_asymmetric": packed(8, "channel", False, dtype=torch.float32),
        "fp8_channel": fp8("channel"),
        "fp8_tensor": fp8("tensor"),
        "fp8_block": fp8("block", [24, 20]),
        "fp8_block_inverse": BlockFp8((16, 32)),
        "gptq4": Gptq(modules, 4, True, 1),
        "gptq4_row": Gptq(modules, 4, True, 1, group=-1),
        "gptq4_desc_act": Gptq(modules, 4, True, 2, desc_act=True),
        "gptq4_asymmetric_v1": Gptq(modules, 4, False, 1),
        "gptq4_asymmetric_v2": Gptq(modules, 4, False, 2),
        "gptq8": Gptq(modules, 8, True, 1),
        "gptq8_desc_act": Gptq(modules, 8, True, 2, desc_act=True),
        "gptq8_asymmetric_v1": Gptq(modules, 8, False, 1),
        "gptq8_asymmetric_v2": Gptq(modules, 8, False, 2),
        "awq": Awq(modules),
    }


def write_format(path, model, pack):
    """Replaces the matrices of the layer by what `pack` makes of them."""
    matrices = {name: tensor.clone() for name, tensor in model.state_dict().items() if "_proj.weight" in name}
    file, dequantized = {}, {}
    for name, weight in matrices.items():
        stored, expected, dequantized[name] = pack(name, weight)
        for part, tensor in stored.items():
            file[name.removesuffix("weight") + part] = tensor
        short = name.split(".")[-2]
        if short in EXPECTED:
            file.update({f"expected.{short}.{part}": tensor for part, tensor in expected.items()})
    with torch.no_grad():
        model.load_state_dict({name: weight.float() for name, weight in dequantized.items()}, strict=False)
        file["logits"] = model(torch.tensor([PROMPT])).logits[0, -NUM_LOGITS:]
        model.load_state_dict(matrices, strict=False)
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in file.items()}, path)


def main():
    output, sources = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    model = random_model().eval()
    plain = {name: tensor for name, tensor in model.state_dict().items() if "_proj.weight" not in name}
    plain.pop("lm_head.weight")  # It is the embedding.
    save_file(plain, output / "plain.safetensors")
    (output / "config.json").write_text(model.config.to_json_string(use_diff=False) + "\n")
    configs = {}
    for name, pack in formats(import_modules(sources)).items():
        write_format(output / f"{name}.safetensors", model, pack)
        configs[name] = pack.config
    (output / "formats.json").write_text(json.dumps(configs, indent=1) + "\n")


if __name__ == "__main__":
    main()
