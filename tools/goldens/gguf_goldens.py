#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the goldens in tests/golden/gguf: gguf_goldens.py OUTPUT_FOLDER

Needs the packages gguf (0.19.0), transformers (5.24.0), torch for CPUs, tokenizers, numpy and sentencepiece.

- llama.gguf, qwen2.gguf, qwen3.gguf, qwen3moe.gguf: random models with matrices of float16. models.json has what
  transformers computes from these files in float32: logits of every token of a prompt, and a greedy continuation. The
  rows of Q and K of llama are stored in the order of llama.cpp's converter.
- further models: the same for other architectures. Their tensors have the names that the package gguf gives them, and
  what transformers computes comes from the model before it was written. Of the logits, the last rows are there.
- gpt_oss_mxfp4.gguf: the model of tests/golden/models/gpt_oss_mxfp4, with the numbers and scales of its experts in
  blocks. The goldens of that model hold for it.
- parts-00001-of-00003.gguf and so on: qwen2.gguf in three parts.
- blocks.gguf: for each quantized type a matrix, and beside it what the package gguf makes of it, in float32.
- llama3_bpe.gguf, qwen2_bpe.gguf, sentencepiece.gguf: the tokenizers of tests/golden/tokenizer, without tensors. The
  expected tokens come from the original files.
- pre_tokenizers.json: tokens of the library tokenizers for further regular expressions, with the vocabulary of
  llama3_bpe.gguf.
"""

import json
import pathlib
import sys

import gguf
import numpy
import sentencepiece
import torch
import transformers
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers import (
    ArceeConfig,
    AutoModelForCausalLM,
    Cohere2Config,
    CohereConfig,
    Ernie4_5Config,
    Exaone4Config,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    GlmConfig,
    GraniteConfig,
    HunYuanDenseV1Config,
    LlamaConfig,
    Ministral3Config,
    Olmo2Config,
    Olmo3Config,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SeedOssConfig,
    SmolLM3Config,
)

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
TOKENIZERS = GOLDENS / "tokenizer"
GPT_OSS = GOLDENS / "models/gpt_oss_mxfp4"
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
SHAPE = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=64,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
)
MODELS = {
    "llama": LlamaConfig(**SHAPE, rope_theta=10000.0, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SHAPE, rope_theta=1000000.0, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16, rope_theta=1000000.0, tie_word_embeddings=False),
    "qwen3moe": Qwen3MoeConfig(
        **SHAPE,
        head_dim=16,
        rope_theta=1000000.0,
        tie_word_embeddings=False,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=16,
        norm_topk_prob=True,
    ),
}
SMALL = dict(
    SHAPE,
    hidden_size=24,
    intermediate_size=40,
    head_dim=8,
    num_hidden_layers=1,
    pad_token_id=0,
    tie_word_embeddings=False,
)
TWO_LAYERS = dict(SMALL, num_hidden_layers=2)
WINDOWS = dict(sliding_window=8, layer_types=["sliding_attention", "full_attention"])
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=4)
LONGROPE = dict(
    rope_type="longrope",
    rope_theta=10000.0,
    partial_rotary_factor=0.75,
    original_max_position_embeddings=128,
    short_factor=[1.0, 1.1, 1.4],
    long_factor=[1.3, 2.5, 6.0],
)
COHERE = {
    **{key: value for key, value in SMALL.items() if key not in ("head_dim", "rms_norm_eps")},
    "layer_norm_eps": 1e-5,
    "logit_scale": 0.3,
    "tie_word_embeddings": True,
}
NUM_LOGIT_ROWS = 2
# The file, its architecture and the model.
FURTHER_MODELS = {
    "gemma": ("gemma", GemmaConfig(**dict(SMALL, tie_word_embeddings=True), rope_theta=10000.0)),
    "gemma2": (
        "gemma2",
        Gemma2Config(
            **dict(TWO_LAYERS, tie_word_embeddings=True),
            sliding_window=8,
            query_pre_attn_scalar=8,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        ),
    ),
    "gemma3": (
        "gemma3",
        Gemma3TextConfig(
            **TWO_LAYERS,
            **WINDOWS,
            query_pre_attn_scalar=8,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        ),
    ),
    "phi3": (
        "phi3",
        Phi3Config(
            **{key: value for key, value in SMALL.items() if key not in ("head_dim", "hidden_size")},
            hidden_size=32,
            sliding_window=8,
            original_max_position_embeddings=128,
            rope_parameters=LONGROPE,
        ),
    ),
    "mistral3": (
        "mistral3",
        Ministral3Config(
            **SMALL, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5)
        ),
    ),
    "olmo2": ("olmo2", Olmo2Config(**dict(SMALL, head_dim=6))),
    "olmo3": (
        "olmo2",
        Olmo3Config(
            **dict(TWO_LAYERS, head_dim=6),
            **WINDOWS,
            rope_parameters={
                "full_attention": YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        ),
    ),
    "smollm3": ("smollm3", SmolLM3Config(**dict(SMALL, num_hidden_layers=4), use_sliding_window=False)),
    "granite": (
        "granite",
        GraniteConfig(
            **dict(SMALL, head_dim=6),
            embedding_multiplier=3.5,
            residual_multiplier=0.6,
            attention_multiplier=0.3,
            logits_scaling=3.0,
        ),
    ),
    "seed_oss": ("seed_oss", SeedOssConfig(**SMALL, residual_dropout=0.0)),
    "exaone4": ("exaone4", Exaone4Config(**TWO_LAYERS, **WINDOWS)),
    "arcee": ("arcee", ArceeConfig(**SMALL)),
    "ernie4_5": ("ernie4_5", Ernie4_5Config(**SMALL)),
    "hunyuan": (
        "hunyuan-dense",
        HunYuanDenseV1Config(
            **SMALL, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 5.0, "factor": 1.0}
        ),
    ),
    "glm": ("chatglm", GlmConfig(**SMALL)),
    "glm4": ("glm4", Glm4Config(**SMALL)),
    "cohere": ("command-r", CohereConfig(**COHERE)),
    "cohere2": ("cohere2", Cohere2Config(**dict(COHERE, num_hidden_layers=2), **WINDOWS)),
}
# Those whose rows of Q and K the converter of llama.cpp permutes.
PERMUTED = ("llama", "mistral3", "smollm3", "granite", "arcee")
NAMES = {
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "gate": "ffn_gate_inp",
}


def random_model(config, seed):
    """Sets weights that are large enough for tokens and positions to matter, and that float16 can hold."""
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("norm.weight"):
                tensor.copy_((0 if "gemma" in config.model_type else 1) + 0.3 * noise)
            elif tensor.dim() == 1:
                tensor.copy_(0.5 * noise)
            elif "embed" in name:
                tied_size = 0.1 if "gemma" in config.model_type else 0.3  # Gemma scales its embeddings.
                tensor.copy_(noise * (tied_size if config.tie_word_embeddings else 1.0))
            else:
                # An activation that squares would make the MLP outweigh attention.
                size = 0.6 if "up_proj" in name and getattr(config, "hidden_act", "") == "relu2" else 1.5
                tensor.copy_(noise * size / tensor.shape[-1] ** 0.5)
            if tensor.dim() >= 2:
                tensor.copy_(tensor.half().float())
    return model


def gguf_name(name):
    if name == "model.norm.weight":
        return "output_norm.weight"
    *_, module, kind = name.split(".")
    prefix = f"blk.{name.split('.')[2]}." if name.startswith("model.layers.") else ""
    return f"{prefix}{NAMES[module]}.{kind}"


def interleaved(tensor, heads):
    """The order of rows in llama.cpp's converter."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def write_experts(writer, name, array):
    """Transformers has gate and up in one tensor."""
    prefix = f"blk.{name.split('.')[2]}.ffn_"
    if name.endswith("gate_up_proj"):
        for part, half in zip(("gate", "up"), numpy.split(array, 2, axis=1)):
            writer.add_tensor(f"{prefix}{part}_exps.weight", numpy.ascontiguousarray(half))
    else:
        writer.add_tensor(f"{prefix}down_exps.weight", array)


def write_model(path, arch, model):
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(config.vocab_size)
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    if hasattr(config, "moe_intermediate_size"):
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    for name, tensor in model.named_parameters():
        array = tensor.detach().numpy()
        if array.ndim == 3:  # All experts of a layer.
            write_experts(writer, name, array.astype(numpy.float16))
            continue
        if arch == "llama" and "q_proj" in name:
            array = interleaved(array, config.num_attention_heads)
        if arch == "llama" and "k_proj" in name:
            array = interleaved(array, config.num_key_value_heads)
        is_half = array.ndim == 2 and not name.endswith("mlp.gate.weight")
        writer.add_tensor(gguf_name(name), array.astype(numpy.float16 if is_half else numpy.float32))
    finish(writer)


def head_dim_of(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def add_rope(writer, config):
    """What the converter writes of the rotary embedding. `config` may have objects for types of layers."""
    ropes = config.rope_parameters
    rope = ropes.get("full_attention", ropes)
    head_dim = head_dim_of(config)
    theta = rope["rope_theta"]
    if rope.get("alpha"):
        theta *= rope["alpha"] ** (head_dim / (head_dim - 2))
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.add_rope_freq_base(theta)
    if config.model_type == "gemma3_text":
        writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if "llama_4_scaling_beta" in rope:
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors((1 + numpy.log(scale) / numpy.log(original)) ** 0.5)
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight", numpy.array(rope[f"{length}_factor"], numpy.float32))


def add_scales(writer, config):
    if config.model_type == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.model_type == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if config.model_type in ("cohere", "cohere2"):
        writer.add_logit_scale(config.logit_scale)


def write_further_model(path, arch, model):
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim_of(config))
    writer.add_value_length(head_dim_of(config))
    if hasattr(config, "layer_norm_eps"):
        writer.add_layer_norm_eps(config.layer_norm_eps)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_eos_token_id(config.eos_token_id)
    window = getattr(config, "sliding_window", None)
    if window is not None and arch not in ("smollm3", "mistral3"):
        writer.add_sliding_window(window)
        if arch in ("exaone4", "olmo2", "gemma3"):
            writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
        elif arch == "cohere2":
            writer.add_sliding_window_pattern(2)
    add_rope(writer, config)
    add_scales(writer, config)
    names = gguf.get_tensor_name_map(dict((v, k) for k, v in gguf.MODEL_ARCH_NAMES.items())[arch], 8)
    for name, tensor in model.named_parameters():
        array = tensor.detach().numpy()
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        for projection, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if arch in PERMUTED and projection in name:
                array = interleaved(array, heads)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(stored, array.astype(numpy.float16 if array.ndim == 2 else numpy.float32))
    finish(writer)


def run_of(model, prompt, count):
    """Returns the greedy tokens and the smallest relative margin between the best two logits."""
    tokens, margin = list(prompt), 1.0
    for _ in range(count):
        row = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        best = torch.topk(row, 2)
        margin = min(margin, ((best.values[0] - best.values[1]) / row.abs().max()).item())
        tokens.append(best.indices[0].item())
    return tokens[len(prompt):], margin


@torch.no_grad()
def write_further_models(output):
    goldens = {}
    for name, (arch, config) in FURTHER_MODELS.items():
        for seed in range(1, 200):
            model = random_model(config, seed)
            model.set_attn_implementation("eager")
            model.eval()
            prompt = numpy.random.RandomState(seed).randint(3, SHAPE["vocab_size"], 12).tolist()
            greedy, margin = run_of(model, prompt, 24)
            if margin > 2e-3 and len(set(greedy)) > 5:
                break
        else:
            raise SystemExit(f"no seed gives {name} a clear and varied text")
        write_further_model(output / f"{name}.gguf", arch, model)
        logits = model(torch.tensor([prompt]), use_cache=False).logits[0, -NUM_LOGIT_ROWS:]
        rows = [[float(f"{value:.6g}") for value in row] for row in logits.tolist()]
        goldens[name] = {"prompt": prompt, "greedy": greedy, "logits": rows}
        print(name, "seed", seed, "margin", margin, "distinct", len(set(greedy)))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(golden)}" for name, golden in goldens.items())
    (output / "further_models.json").write_text("{" + lines + "}\n")


def write_parts(output):
    """Divides the tensors of qwen2.gguf among three files, like llama-gguf-split: the first one has the metadata."""
    source = gguf.GGUFReader(output / "qwen2.gguf")
    tensors = source.tensors
    for part in range(3):
        writer = gguf.GGUFWriter(output / f"parts-{part + 1:05}-of-00003.gguf", "qwen2")
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", 3)
        writer.add_int32("split.tensors.count", len(tensors))
        if part == 0:
            for field in source.fields.values():
                if not field.name.startswith(("GGUF.", "general.architecture")):
                    writer.add_key_value(field.name, field.contents(), field.types[0])
        for tensor in tensors[part * 8 : len(tensors) if part == 2 else part * 8 + 8]:
            writer.add_tensor(tensor.name, tensor.data)
        finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.no_grad()
def write_models(output):
    goldens = {}
    for arch, config in MODELS.items():
        for seed in range(1, 200):
            write_model(output / f"{arch}.gguf", arch, random_model(config, seed))
            model = AutoModelForCausalLM.from_pretrained(
                output,
                gguf_file=f"{arch}.gguf",
                config=config,
                dtype=torch.float32,
                attn_implementation="eager",
            ).eval()
            prompt = numpy.random.RandomState(seed).randint(3, SHAPE["vocab_size"], 12).tolist()
            tokens, margin = list(prompt), 1.0
            for _ in range(24):
                row = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
                best = torch.topk(row, 2)
                margin = min(margin, ((best.values[0] - best.values[1]) / row.abs().max()).item())
                tokens.append(best.indices[0].item())
            greedy = tokens[len(prompt):]
            if margin > 2e-3 and len(set(greedy)) > 8:
                break
        else:
            raise SystemExit(f"no seed gives {arch} a clear and varied text")
        logits = model(torch.tensor([prompt]), use_cache=False).logits[0]
        rows = [[float(f"{value:.6g}") for value in row] for row in logits.tolist()]
        goldens[arch] = {"prompt": prompt, "greedy": greedy, "logits": rows}
        print(arch, "seed", seed, "margin", margin, "distinct", len(set(greedy)))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(golden)}" for name, golden in goldens.items())
    (output / "models.json").write_text("{" + lines + "}\n")


def write_blocks(output):
    random = numpy.random.RandomState(3)
    writer = gguf.GGUFWriter(output / "blocks.gguf", "blocks")
    for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"):
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        if name in ("IQ4_NL", "MXFP4"):  # Any bytes are a block. Some scales of MXFP4 are the least and the greatest.
            raw = random.randint(0, 256, (2, 4, size)).astype(numpy.uint8)
            if name == "MXFP4":
                raw[..., 0] = [[120, 121, 122, 127], [0, 1, 2, 252]]
            else:
                raw[..., :2] = (random.randn(2, 4, 1) * 0.02).astype(numpy.float16).view(numpy.uint8)
            raw = raw.reshape(2, 4 * size)
        elif name.endswith("K"):  # The package cannot write these: any bytes with small scales are a block.
            raw = random.randint(0, 256, (2, 256 // block * size)).astype(numpy.uint8)
            scales = (random.rand(2, 2) * 0.02).astype(numpy.float16).view(numpy.uint8)
            if name == "Q6_K":
                raw[:, -2:] = scales[:, :2]
            else:
                raw[:, :4] = scales
        else:
            raw = gguf.quants.quantize(random.randn(2, 128).astype(numpy.float32), kind)
        writer.add_tensor(name, raw, raw_dtype=kind)
        writer.add_tensor(f"{name}.dequantized", gguf.quants.dequantize(raw, kind))
    finish(writer)


def read_safetensors(path):
    """Returns the tensors as numpy arrays, those of bfloat16 as float32."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        first, end = entry["data_offsets"]
        raw = data[begin + first : begin + end]
        if entry["dtype"] == "BF16":
            array = (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        else:
            array = numpy.frombuffer(raw, {"U8": numpy.uint8, "F32": numpy.float32}[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
    return tensors


def mxfp4_blocks(numbers, scales):
    """Numbers [..., groups, 16], whose bytes have neighbours, and scales [..., groups] as blocks of GGUF."""
    codes = numpy.stack([numbers & 15, numbers >> 4], axis=-1).reshape(*numbers.shape[:-1], 32)
    halves = codes[..., :16] | codes[..., 16:] << 4
    return numpy.concatenate([scales[..., None], halves], axis=-1).reshape(*scales.shape[:-1], -1)


def write_gpt_oss(output):
    config = json.loads((GPT_OSS / "config.json").read_text())
    tensors = read_safetensors(GPT_OSS / "model.safetensors")
    rope = config["rope_parameters"]
    writer = gguf.GGUFWriter(output / "gpt_oss_mxfp4.gguf", "gpt-oss")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT_OSS, config["num_hidden_layers"])
    halves = {"gate_up_proj": {"gate": slice(0, None, 2), "up": slice(1, None, 2)}, "down_proj": {"down": slice(None)}}
    for name, array in tensors.items():
        prefix = f"blk.{name.split('.')[2]}" if name.startswith("model.layers.") else ""
        matrix, _, kind = name.split(".")[-1].rpartition("_")
        if ".experts." in name and kind != "scales":
            for part, rows in halves[matrix].items():
                own = array[:, rows]
                if kind == "bias":
                    writer.add_tensor(f"{prefix}.ffn_{part}_exps.bias", numpy.ascontiguousarray(own))
                    continue
                blocks = mxfp4_blocks(own, tensors[name.replace("_blocks", "_scales")][:, rows])
                mxfp4 = gguf.GGMLQuantizationType.MXFP4
                writer.add_tensor(f"{prefix}.ffn_{part}_exps.weight", blocks, raw_dtype=mxfp4)
        elif name.endswith("sinks"):
            writer.add_tensor(f"{prefix}.attn_sinks.weight", array)
        elif ".experts." not in name:
            stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
            is_half = array.ndim == 2 and ".router." not in name
            if is_half:  # As bfloat16.
                array = (array.view(numpy.uint32) >> 16).astype(numpy.uint16).view(numpy.uint8)
            writer.add_tensor(stored, array, raw_dtype=gguf.GGMLQuantizationType.BF16 if is_half else None)
    finish(writer)


def write_byte_pairs(path, name, pre, chat_template):
    source = json.loads((TOKENIZERS / name / "tokenizer.json").read_text())
    tokens = {index: (text, NORMAL) for text, index in source["model"]["vocab"].items()}
    for added in source["added_tokens"]:
        tokens[added["id"]] = (added["content"], CONTROL if added["special"] else USER_DEFINED)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in source["model"]["merges"]]
    for index in range(max(tokens)):  # The converter fills gaps with unused tokens.
        tokens.setdefault(index, (f"[PAD{index}]", 5))
    ids = {text: index for index, (text, _) in tokens.items()}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([tokens[index][0] for index in range(len(tokens))])
    writer.add_token_types([tokens[index][1] for index in range(len(tokens))])
    writer.add_token_merges(merges)
    bos = next((text for text in ("<|begin_of_text|>", "<|endoftext|>") if text in ids))
    eos = next((text for text in ("<|eot_id|>", "<|end_of_text|>", "<|im_end|>") if text in ids))
    writer.add_bos_token_id(ids[bos])
    writer.add_eos_token_id(ids[eos])
    writer.add_chat_template(chat_template)
    finish(writer)


def write_sentencepiece(path):
    source = sentencepiece.SentencePieceProcessor(model_file=str(TOKENIZERS / "sp_bpe/tokenizer.model"))
    kinds = {"is_unknown": 2, "is_control": 3, "is_unused": 5, "is_byte": 6}
    tokens, scores, types = [], [], []
    for index in range(source.piece_size()):
        tokens.append(source.id_to_piece(index))
        scores.append(source.get_score(index))
        types.append(next((kind for name, kind in kinds.items() if getattr(source, name)(index)), NORMAL))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(source.bos_id())
    writer.add_eos_token_id(source.eos_id())
    writer.add_unk_token_id(source.unk_id())
    finish(writer)


def write_pre_tokenizers(output):
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    levels = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), levels])
    llama3 = pre_tokenizers.Sequence([
        split(rf"{contractions}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
              r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), bytes_only])
    kinds = {
        "dbrx": llama3,
        "glm4": llama3,
        "chatglm-bpe": llama3,
        "gpt-4o": pre_tokenizers.Sequence([
            split(f"{before}{upper}*{lower}+{contractions}?|{before}{upper}+{lower}*{contractions}?"
                  r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"), bytes_only]),
        "seed-coder": pre_tokenizers.Sequence([
            split(rf"{contractions}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
                  r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"), bytes_only]),
        "exaone4": levels,
        "olmo": levels,
        "hunyuan-dense": pre_tokenizers.Sequence([
            split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
            split(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                  r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), bytes_only]),
        "starcoder": digits,
        "refact": digits,
        "command-r": digits,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), levels]),
        "gpt-2": levels,
        "tekken": pre_tokenizers.Sequence([
            split(f"{before}{upper}*{lower}+|{before}{upper}+{lower}*"
                  r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"), bytes_only]),
    }
    texts = [
        "Hello World's 12345 tests, don't",
        "camelCaseText and UPPER",
        " \n\n  x = 3.14159;\t\t// π",
        "naïve Čeština",
        "日本語 テスト 2024年",
        "a  b   c    ",
        "HTTPServer/2.0 (x86_64)\r\n",
        "'S 'll '",
    ]
    cases = {}
    for name, kind in kinds.items():
        tokenizer = Tokenizer.from_file(str(TOKENIZERS / "llama3/tokenizer.json"))
        tokenizer.pre_tokenizer = kind
        cases[name] = tokenizer
    # Words that are tokens are not merged from their bytes in llama3, but they are with smollm and gpt-2.
    result = {}
    for name, tokenizer in cases.items():
        document = json.loads(tokenizer.to_str())
        document["model"]["ignore_merges"] = name == "tekken"
        tokenizer = Tokenizer.from_str(json.dumps(document))
        result[name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    (output / "pre_tokenizers.json").write_text(json.dumps({"texts": texts, "tokens": result}) + "\n")


def main():
    output = pathlib.Path(sys.argv[1])
    output.mkdir(parents=True, exist_ok=True)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    write_blocks(output)
    write_gpt_oss(output)
    write_byte_pairs(output / "llama3_bpe.gguf", "llama3", "llama-bpe", "{{ bos_token }}{{ messages[0]['content'] }}")
    write_byte_pairs(output / "qwen2_bpe.gguf", "qwen2", "qwen2", [
        {"name": "default", "template": "{{ messages[0]['content'] }}<|im_end|>"},
        {"name": "tool_use", "template": "{{ tools[0] }}"}])
    write_sentencepiece(output / "sentencepiece.gguf")
    write_pre_tokenizers(output)
    write_models(output)
    write_further_models(output)
    write_parts(output)


if __name__ == "__main__":
    main()
