# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/models and tests/golden/sampling: results of Hugging Face transformers, in float32.

Needs torch, transformers, safetensors and numpy; run from the repository root:
    python3 tools/goldens/models.py [--only NAME,NAME...] [stories260k model directory]
Everything is made from seeds, so a second run writes the same files. With other versions of the packages, the last bits
may differ. With --only, it writes only these models; "defaults", "rope" and "masks" are the other files.
"""

import argparse
import json
import pathlib
import numpy
import torch
import transformers
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GraniteConfig,
    LlamaConfig,
    MinistralConfig,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    SeedOssConfig,
    SmolLM3Config,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

ROOT = pathlib.Path("tests/golden")
NUM_GREEDY = 64
PROMPT_LENGTHS = (3, 17, 40)
MIN_DISTINCT = 20  # Minimum number of distinct greedy tokens: a text that repeats one token proves little.
MIN_MARGIN = 5e-4  # Between the best two logits, relative to the largest magnitude in the row. Far above rounding.

SHAPE = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=96,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
)
LLAMA3_ROPE = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
# Of 8 dimensions of a head, 6 rotate.
LONGROPE = dict(
    rope_type="longrope",
    rope_theta=10000.0,
    partial_rotary_factor=0.75,
    original_max_position_embeddings=128,
    short_factor=[1.0, 1.1, 1.4],
    long_factor=[1.3, 2.5, 6.0],
)
YARN_ROPE = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)


def families():
    """Returns {name: (config, keys to write in the format of transformers 4, stored type)}."""
    shape = SHAPE
    gemma = {**shape, "num_key_value_heads": 2, "head_dim": 16}
    phi3 = {**shape, "num_key_value_heads": 2, "pad_token_id": 0, "original_max_position_embeddings": 128}
    llama2 = LlamaConfig(**shape, num_key_value_heads=4, rope_theta=10000.0)
    return {
        "llama2": (llama2, {"rope_theta": 10000.0, "rope_scaling": None}, torch.float32),
        "llama3": (
            LlamaConfig(
                **{**shape, "tie_word_embeddings": True},
                num_key_value_heads=2,
                rope_parameters=dict(LLAMA3_ROPE, rope_theta=500000.0),
            ),
            {"rope_theta": 500000.0, "rope_scaling": LLAMA3_ROPE},
            torch.float32,
        ),
        "mistral": (
            MistralConfig(**shape, num_key_value_heads=1, rope_theta=10000.0, sliding_window=8),
            {"rope_theta": 10000.0},
            torch.float32,
        ),
        "qwen2": (
            Qwen2Config(
                **shape,
                num_key_value_heads=2,
                rope_theta=1000000.0,
                use_sliding_window=True,
                sliding_window=12,
                max_window_layers=1,
            ),
            None,
            torch.float32,
        ),
        "qwen3": (
            Qwen3Config(**shape, num_key_value_heads=2, head_dim=16, rope_theta=1000000.0),
            None,
            torch.float32,
        ),
        "yarn": (
            LlamaConfig(
                **shape,
                num_key_value_heads=2,
                head_dim=16,
                attention_bias=True,
                mlp_bias=True,
                rope_parameters=dict(YARN_ROPE, rope_theta=10000.0),
            ),
            None,
            torch.float32,
        ),
        "olmo2": (Olmo2Config(**shape, num_key_value_heads=2, rope_theta=10000.0), None, torch.float32),
        # Layer 1 has no rotary embedding. It alone has a sliding window, as in the architecture's default.
        "smollm3": (
            SmolLM3Config(
                **{**shape, "tie_word_embeddings": True},
                pad_token_id=0,
                num_key_value_heads=2,
                rope_theta=10000.0,
                no_rope_layer_interval=2,
                use_sliding_window=True,
                sliding_window=12,
            ),
            None,
            torch.float32,
        ),
        "granite": (
            GraniteConfig(
                **shape,
                num_key_value_heads=2,
                rope_theta=10000.0,
                embedding_multiplier=3.5,
                residual_multiplier=0.6,
                attention_multiplier=0.3,
                logits_scaling=3.0,
                attention_bias=True,
                mlp_bias=True,
            ),
            None,
            torch.float32,
        ),
        # K and V have biases, and the output matrix has none.
        "seed_oss": (
            SeedOssConfig(**shape, num_key_value_heads=2, head_dim=16, rope_theta=10000.0, residual_dropout=0.0),
            None,
            torch.float32,
        ),
        "ministral": (
            MinistralConfig(
                **{**shape, "num_hidden_layers": 3},
                num_key_value_heads=2,
                head_dim=8,
                rope_theta=10000.0,
                sliding_window=12,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            ),
            None,
            torch.float32,
        ),
        "gemma": (GemmaConfig(**gemma, rope_theta=10000.0), None, torch.float32),
        # The caps are so low that they change the scores and the logits.
        "gemma2": (
            Gemma2Config(
                **gemma,
                rope_theta=10000.0,
                sliding_window=12,
                query_pre_attn_scalar=5,
                attn_logit_softcapping=2.0,
                final_logit_softcapping=3.0,
            ),
            None,
            torch.float32,
        ),
        # It has layers of both types, and the rotary embedding of layers without a window is scaled.
        "gemma3": (
            Gemma3TextConfig(
                **gemma,
                sliding_window=12,
                query_pre_attn_scalar=5,
                layer_types=["sliding_attention", "full_attention"],
                rope_parameters={
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            ),
            None,
            torch.float32,
        ),
        # All texts are shorter than the original context, so that the short factors count.
        "phi3": (Phi3Config(**phi3, sliding_window=12, rope_parameters=LONGROPE), None, torch.float32),
        # All prompts are longer than the original context, so that the long factors count.
        "phi3_long": (
            Phi3Config(
                **{**phi3, "original_max_position_embeddings": 2},
                rope_parameters=dict(LONGROPE, original_max_position_embeddings=2, attention_factor=1.19),
            ),
            None,
            torch.float32,
        ),
        "bfloat16": (llama2, None, torch.bfloat16),
        "float16": (llama2, None, torch.float16),
    }


def random_model(config, seed):
    """Sets weights that are large enough for tokens and positions to matter. The usual initialisation is too small."""
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("norm.weight"):  # The norms of Gemma add 1 to their weights.
                tensor.copy_((0 if "gemma" in config.model_type else 1) + 0.3 * noise)
            elif tensor.dim() == 1:
                tensor.copy_(0.5 * noise)
            elif "embed" in name:  # With a large tied embedding, the model repeats its input.
                tensor.copy_(noise * (0.3 if config.tie_word_embeddings else 1.0))
            else:
                tensor.copy_(noise * 1.5 / tensor.shape[1] ** 0.5)
    return model


def write_directory(path, model, legacy_keys, dtype):
    path.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in model.named_parameters()}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_diff_dict()
    config["architectures"] = [type(model).__name__]
    config.pop("transformers_version", None)
    if legacy_keys is not None:
        for key in ("rope_parameters", "dtype", "layer_types"):
            config.pop(key, None)
        config.update(legacy_keys, torch_dtype="float32")
    else:
        config["dtype"] = str(dtype).removeprefix("torch.")
    (path / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def load_model(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def logits_of(model, tokens):
    return model(torch.tensor([tokens]), use_cache=False).logits[0]


def greedy(model, prompt, count):
    """Returns the greedy tokens, computed without a cache, and the smallest relative margin of all choices."""
    tokens = list(prompt)
    margin = float("inf")
    for _ in range(count):
        row = logits_of(model, tokens)[-1]
        best = torch.topk(row, 2)
        margin = min(margin, ((best.values[0] - best.values[1]) / row.abs().max()).item())
        tokens.append(best.indices[0].item())
        if margin <= MIN_MARGIN:
            break  # The model is of no use.
    return tokens[len(prompt) :], margin


def check_window_matters(model, prompt):
    """Checks that the sliding window changes the logits of a long prompt."""
    window = getattr(model.config, "sliding_window", None)
    if window is None:
        return
    if model.config.model_type not in ("mistral", "phi3", "qwen2"):
        assert set(model.config.layer_types) == {"full_attention", "sliding_attention"}
        return
    rows = logits_of(model, prompt)
    shown = logits_of(model, [(prompt[0] + 1) % SHAPE["vocab_size"]] + prompt[1:])
    layers = model.config.num_hidden_layers
    if model.config.model_type in ("mistral", "phi3"):
        assert not torch.equal(rows[window - 1], shown[window - 1])
        assert torch.equal(rows[layers * window :], shown[layers * window :])
    else:
        assert model.config.layer_types == ["full_attention", "sliding_attention"]


def write_family(name, config, legacy_keys, dtype):
    path = ROOT / "models" / name
    for seed in range(1, 200):
        generator = numpy.random.RandomState(seed)
        prompts = [generator.randint(3, SHAPE["vocab_size"], length).tolist() for length in PROMPT_LENGTHS]
        write_directory(path, random_model(config, seed), legacy_keys, dtype)
        model = load_model(path)
        runs = []
        for prompt in prompts:
            tokens, margin = greedy(model, prompt, NUM_GREEDY)
            if margin <= MIN_MARGIN or len(set(tokens)) < MIN_DISTINCT:
                break
            runs.append((tokens, margin))
        if len(runs) == len(prompts):
            break
    else:
        raise SystemExit(f"no seed gives {name} a clear and varied text")
    check_window_matters(model, prompts[-1])
    logits = [logits_of(model, prompt) for prompt in prompts]
    torch.cat(logits).numpy().astype("<f4").tofile(path / "logits.bin")
    golden = {"seed": seed, "prompts": prompts, "greedy": [tokens for tokens, _ in runs]}
    (path / "golden.json").write_text(json.dumps(golden) + "\n")
    print(name, "seed", seed, "distinct", [len(set(tokens)) for tokens, _ in runs])


def write_defaults():
    """Records what transformers assumes for a config.json that only names its architecture."""
    configs = {type(config).__name__: type(config) for config, _, _ in families().values()}
    defaults = {}
    for name, make in sorted(configs.items()):
        config = make()
        layers = range(config.num_hidden_layers)
        types = getattr(config, "layer_types", None)
        window = getattr(config, "sliding_window", None) or 0
        slides = [types is None or types[i] == "sliding_attention" for i in layers]
        ropes = config.rope_parameters
        full = ropes.get("full_attention", ropes)
        defaults[config.model_type] = {
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "num_heads": config.num_attention_heads,
            "num_kv_heads": config.num_key_value_heads,
            "head_dim": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            "vocab_size": config.vocab_size,
            "max_position_embeddings": config.max_position_embeddings,
            "rms_norm_eps": config.rms_norm_eps,
            "rope_theta": full["rope_theta"],
            "window_rope_theta": ropes["sliding_attention"]["rope_theta"] if "sliding_attention" in ropes else 0,
            "tie_word_embeddings": config.tie_word_embeddings,
            "bos": -1 if config.bos_token_id is None else config.bos_token_id,
            "eos": [] if config.eos_token_id is None else [config.eos_token_id],
            "windows": [window if slides[i] else 0 for i in layers],
            "rotates": [bool(flag) for flag in getattr(config, "no_rope_layers", [1 for _ in layers])],
            "activation": getattr(config, "hidden_activation", None) or config.hidden_act,
            "qkv_bias": getattr(config, "attention_bias", config.model_type == "qwen2"),
        }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in defaults.items())
    (ROOT / "models" / "defaults.json").write_text("{" + lines + "}\n")


def write_rope():
    """Returns the text of config.json and the inverse frequencies in transformers, for every kind of rope scaling."""
    kinds = [
        {"rope_type": "default", "rope_theta": 10000.0},
        {"rope_type": "default", "rope_theta": 1000000.0},
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
        dict(LLAMA3_ROPE, rope_theta=500000.0, original_max_position_embeddings=8192),
        dict(LLAMA3_ROPE, rope_theta=500000.0, factor=32.0),
        dict(YARN_ROPE, rope_theta=10000.0),
        dict(YARN_ROPE, rope_theta=1000000.0, factor=32.0, original_max_position_embeddings=32768),
        dict(YARN_ROPE, rope_theta=10000.0, beta_fast=16.0, beta_slow=2.0, truncate=False),
        dict(YARN_ROPE, rope_theta=10000.0, attention_factor=1.25),
        dict(YARN_ROPE, rope_theta=10000.0, mscale=1.0, mscale_all_dim=0.7),
        {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    ]
    cases = []
    for parameters in kinds:
        for head_dim in (8, 64, 128):
            config = LlamaConfig(**SHAPE, num_key_value_heads=4, head_dim=head_dim, rope_parameters=dict(parameters))
            compute = ROPE_INIT_FUNCTIONS.get(
                parameters["rope_type"], LlamaRotaryEmbedding.compute_default_rope_parameters
            )
            inv_freq, attention_factor = compute(config)
            cases.append(
                {
                    "rope_parameters": parameters,
                    "head_dim": head_dim,
                    "attention_factor": attention_factor,
                    "inv_freq": [float(value) for value in inv_freq],
                }
            )
    lines = ",\n".join(json.dumps(case) for case in cases)
    (ROOT / "models" / "rope.json").write_text("[" + lines + "]\n")


def write_story(directory):
    model = load_model(directory)
    tokens, margin = greedy(model, [1], 100)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    golden = {"prompt": [1], "greedy": tokens, "text": tokenizer.decode(tokens), "margin": margin}
    (ROOT / "models" / "stories260k.json").write_text(json.dumps(golden) + "\n")
    print("stories260k", repr(golden["text"]), "margin", margin)


def write_masks():
    """Returns which tokens remain after the logits processors, in the order in which generate applies them."""
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    generator = numpy.random.RandomState(7)
    settings = [
        {},
        {"temperature": 0.7},
        {"top_k": 1},
        {"top_k": 5},
        {"top_k": 200},
        {"top_p": 0.9},
        {"top_p": 0.1},
        {"top_p": 0.5, "temperature": 1.6},
        {"min_p": 0.05},
        {"min_p": 0.3, "temperature": 0.5},
        {"min_p": 1.0},
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.8, "top_k": 4},
        {"temperature": 0.8, "top_k": 12, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.2},
        {"temperature": 2.0, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.5},
    ]
    cases = []
    for vocab_size, spread in ((40, 2.0), (150, 1.0)):
        logits = (generator.randn(vocab_size) * spread).astype(numpy.float32)
        seen = generator.randint(0, vocab_size, 12).tolist()
        for setting in settings:
            steps = LogitsProcessorList()
            if "repetition_penalty" in setting:
                steps.append(RepetitionPenaltyLogitsProcessor(setting["repetition_penalty"]))
            if "temperature" in setting:
                steps.append(TemperatureLogitsWarper(setting["temperature"]))
            if "top_k" in setting:
                steps.append(TopKLogitsWarper(setting["top_k"]))
            if "top_p" in setting:
                steps.append(TopPLogitsWarper(setting["top_p"]))
            if "min_p" in setting:
                steps.append(MinPLogitsWarper(setting["min_p"]))
            row = steps(torch.tensor([seen]), torch.tensor(logits[None].copy()))[0]
            kept = torch.nonzero(torch.isfinite(row)).flatten().tolist()
            chances = torch.softmax(row, -1)[kept].tolist()
            cases.append(
                {
                    "logits": [float(value) for value in logits],
                    "seen": seen,
                    **setting,
                    "kept": kept,
                    "probabilities": [round(chance, 6) for chance in chances],
                }
            )
    path = ROOT / "sampling"
    path.mkdir(parents=True, exist_ok=True)
    (path / "masks.json").write_text("[" + ",\n".join(json.dumps(case) for case in cases) + "]\n")


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", type=lambda names: names.split(","))
    parser.add_argument("story", nargs="?")
    args = parser.parse_args()

    def wanted(name):
        return args.only is None or name in args.only

    for name, (config, legacy_keys, dtype) in families().items():
        if wanted(name):
            write_family(name, config, legacy_keys, dtype)
    if wanted("defaults"):
        write_defaults()
    if wanted("rope"):
        write_rope()
    if wanted("masks"):
        write_masks()
    if args.story is not None:
        write_story(args.story)


if __name__ == "__main__":
    main()
