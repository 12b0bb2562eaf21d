#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the goldens in tests/golden/gguf: gguf_goldens.py OUTPUT_FOLDER

Needs the packages gguf (0.19.0), transformers (5.24.0), torch for CPUs, tokenizers, numpy and sentencepiece.

- llama.gguf, qwen2.gguf, qwen3.gguf: random models with matrices of float16. models.json has what transformers
  computes from these files in float32: logits of every token of a prompt, and a greedy continuation. The rows of Q and
  K of llama are stored in the order of llama.cpp's converter.
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
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

TOKENIZERS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/tokenizer"
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
}
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
}


def random_model(config, seed):
    """Sets weights that are large enough for tokens and positions to matter, and that float16 can hold."""
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("norm.weight"):
                tensor.copy_(1 + 0.3 * noise)
            elif tensor.dim() == 1:
                tensor.copy_(0.5 * noise)
            elif "embed" in name:
                tensor.copy_(noise * (0.3 if config.tie_word_embeddings else 1.0))
            else:
                tensor.copy_(noise * 1.5 / tensor.shape[1] ** 0.5)
            if tensor.dim() == 2:
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
    for name, tensor in model.named_parameters():
        array = tensor.detach().numpy()
        if arch == "llama" and "q_proj" in name:
            array = interleaved(array, config.num_attention_heads)
        if arch == "llama" and "k_proj" in name:
            array = interleaved(array, config.num_key_value_heads)
        writer.add_tensor(gguf_name(name), array.astype(numpy.float16 if array.ndim == 2 else numpy.float32))
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
    for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"):
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        if name.endswith("K"):  # The package cannot write these: any bytes with small scales are a block.
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
    kinds = {
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
    write_byte_pairs(output / "llama3_bpe.gguf", "llama3", "llama-bpe", "{{ bos_token }}{{ messages[0]['content'] }}")
    write_byte_pairs(output / "qwen2_bpe.gguf", "qwen2", "qwen2", [
        {"name": "default", "template": "{{ messages[0]['content'] }}<|im_end|>"},
        {"name": "tool_use", "template": "{{ tools[0] }}"}])
    write_sentencepiece(output / "sentencepiece.gguf")
    write_pre_tokenizers(output)
    write_models(output)


if __name__ == "__main__":
    main()
