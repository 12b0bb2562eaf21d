#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a Llama checkpoint of make_model into a GGUF file with the same weights, for llama.cpp.

    to_gguf.py MODEL_DIR OUTPUT.gguf

As in llama.cpp's own converter, matrices keep their type and vectors become float32. The vocabulary has only words and
no byte tokens, so that the output of a model with random weights is always valid UTF-8.
"""

import json
import mmap
import pathlib
import struct
import sys

ALIGNMENT = 32
FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 30  # Type numbers of ggml.
TYPES = {"F32": FLOAT32, "F16": FLOAT16, "BF16": BFLOAT16}
FILE_TYPES = {FLOAT32: 0, FLOAT16: 1, BFLOAT16: 32}
LAYER_TENSORS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
TOP_TENSORS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
               "lm_head.weight": "output.weight"}


def gguf_name(name):
    """Converts "model.layers.3.mlp.up_proj.weight" to "blk.3.ffn_up.weight"."""
    if name in TOP_TENSORS:
        return TOP_TENSORS[name]
    layer, tensor = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{LAYER_TENSORS[tensor]}.weight"


def interleaved(data, num_heads, num_rows):
    """Converts Q or K to the layout of llama.cpp: a rotated pair is rows (2 i, 2 i + 1), not (i, i + half)."""
    row = len(data) // num_rows
    half = num_rows // num_heads // 2
    rows = [data[i * row:(i + 1) * row] for i in range(num_rows)]
    return b"".join(rows[head * 2 * half + side * half + i]
                    for head in range(num_heads) for i in range(half) for side in range(2))


def widened(data, kind):
    """Returns a vector as float32."""
    if kind == FLOAT32:
        return bytes(data)
    if kind == FLOAT16:
        return struct.pack(f"<{len(data) // 2}f", *struct.unpack(f"<{len(data) // 2}e", data))
    return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


class Checkpoint:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        if self.config["model_type"] != "llama":
            raise ValueError(f"{folder} is a {self.config['model_type']} model, must be llama")
        with open(folder / "model.safetensors", "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header_size = struct.unpack("<Q", self.bytes[:8])[0]
        self.header = json.loads(self.bytes[8:8 + header_size])
        self.header.pop("__metadata__", None)
        self.start = 8 + header_size

    def tensor(self, name):
        """Returns (GGUF name, shape, type, function that returns the bytes)."""
        info = self.header[name]
        begin, end = (self.start + offset for offset in info["data_offsets"])
        kind, shape = TYPES[info["dtype"]], info["shape"]

        def data():
            raw = self.bytes[begin:end]
            if len(shape) == 1:
                return widened(raw, kind)
            for projection, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
                if projection in name:
                    return interleaved(raw, self.config[heads], shape[0])
            return raw

        return gguf_name(name), shape, FLOAT32 if len(shape) == 1 else kind, data


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def field(key, kind, value):
    """Encodes one metadata field. `kind` is u32, f32, str, [str], [f32] or [i32]."""
    codes = {"u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "str": (8, None)}

    def pack(one, name):
        return string(one) if name == "str" else struct.pack(codes[name][1], one)

    if kind[0] != "[":
        return string(key) + struct.pack("<I", codes[kind][0]) + pack(value, kind)
    element = kind[1:-1]
    return (string(key) + struct.pack("<IIQ", 9, codes[element][0], len(value)) +
            b"".join(pack(one, element) for one in value))


def metadata(config, name, file_type):
    vocab = config["vocab_size"]
    words = ["<unk>", "<s>", "</s>"] + [f"\u2581w{i}" for i in range(3, vocab)]
    unknown, control, normal = 2, 3, 1
    return [
        field("general.architecture", "str", "llama"),
        field("general.name", "str", name),
        field("general.alignment", "u32", ALIGNMENT),
        field("general.file_type", "u32", file_type),
        field("llama.vocab_size", "u32", vocab),
        field("llama.context_length", "u32", config["max_position_embeddings"]),
        field("llama.embedding_length", "u32", config["hidden_size"]),
        field("llama.block_count", "u32", config["num_hidden_layers"]),
        field("llama.feed_forward_length", "u32", config["intermediate_size"]),
        field("llama.attention.head_count", "u32", config["num_attention_heads"]),
        field("llama.attention.head_count_kv", "u32", config["num_key_value_heads"]),
        field("llama.attention.key_length", "u32", config["head_dim"]),
        field("llama.attention.value_length", "u32", config["head_dim"]),
        field("llama.attention.layer_norm_rms_epsilon", "f32", config["rms_norm_eps"]),
        field("llama.rope.dimension_count", "u32", config["head_dim"]),
        field("llama.rope.freq_base", "f32", config["rope_theta"]),
        field("tokenizer.ggml.model", "str", "llama"),
        field("tokenizer.ggml.tokens", "[str]", words),
        field("tokenizer.ggml.scores", "[f32]", [0.0] * vocab),
        field("tokenizer.ggml.token_type", "[i32]", [unknown, control, control] + [normal] * (vocab - 3)),
        field("tokenizer.ggml.unknown_token_id", "u32", 0),
        field("tokenizer.ggml.bos_token_id", "u32", 1),
        field("tokenizer.ggml.eos_token_id", "u32", 2)]


def aligned(size):
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def convert(folder, output):
    checkpoint = Checkpoint(folder)
    tensors = [checkpoint.tensor(name) for name in checkpoint.header]
    matrix_type = next(kind for _, shape, kind, _ in tensors if len(shape) == 2)
    fields = metadata(checkpoint.config, folder.name, FILE_TYPES[matrix_type])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(fields)
    offset = 0
    for name, shape, kind, _ in tensors:
        head += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, offset)
        size = (4 if kind == FLOAT32 else 2)
        for dimension in shape:
            size *= dimension
        offset += aligned(size)
    with open(output, "wb") as file:
        file.write(head.ljust(aligned(len(head)), b"\0"))
        for _, _, _, data in tensors:
            raw = data()
            file.write(raw.ljust(aligned(len(raw)), b"\0"))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    convert(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
