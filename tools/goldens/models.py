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
import tempfile
import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (
    ApertusConfig,
    ArceeConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    Cohere2Config,
    CohereConfig,
    Ernie4_5Config,
    Exaone4Config,
    Gemma2Config,
    Gemma3Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    Glm4MoeConfig,
    GlmConfig,
    GptOssConfig,
    GraniteConfig,
    GraniteMoeConfig,
    HeliumConfig,
    HunYuanDenseV1Config,
    InternVLConfig,
    LlamaConfig,
    LlavaConfig,
    MinistralConfig,
    Ministral3Config,
    Mistral3Config,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Olmo3Config,
    OlmoeConfig,
    Phi3Config,
    Qwen2_5_VLConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3VLConfig,
    SeedOssConfig,
    SmolLM3Config,
    SmolVLMConfig,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

ROOT = pathlib.Path("tests/golden")
NUM_GREEDY = 64
PROMPT_LENGTHS = (3, 17, 40)
MIN_DISTINCT = 20  # Minimum number of distinct greedy tokens: a text that repeats one token proves little.
MIN_DISTINCT_OF_SMALL = 10  # The same for the smaller models, which repeat themselves sooner.
MIN_MARGIN = 5e-4  # Between the best two logits, relative to the largest magnitude in the row. Far above rounding.
MIN_ROUTE_MARGIN = 1e-5  # Between the scores of the last chosen expert and the next one.

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
# The shape of further families, whose checkpoints are smaller.
SMALL = dict(
    SHAPE,
    hidden_size=24,
    intermediate_size=40,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=64,
    pad_token_id=0,
)
VISION = dict(
    hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
)
QWEN_VISION = dict(
    hidden_size=8, intermediate_size=8, depth=1, num_heads=2, out_hidden_size=24, patch_size=2, window_size=4
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
    experts = {"num_key_value_heads": 2, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16}
    qwen3_moe = Qwen3MoeConfig(
        **{**shape, "num_hidden_layers": 3},
        **experts,
        head_dim=16,
        rope_theta=1000000.0,
        norm_topk_prob=True,
        mlp_only_layers=[1],
    )
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
        # Layer 1 has no experts.
        "qwen3_moe": (qwen3_moe, None, torch.float32),
        "qwen3_moe_bfloat16": (qwen3_moe, None, torch.bfloat16),
        # Layer 0 has a window.
        "qwen2_moe": (
            Qwen2MoeConfig(
                **shape,
                **experts,
                shared_expert_intermediate_size=24,
                rope_theta=1000000.0,
                use_sliding_window=True,
                sliding_window=12,
                max_window_layers=1,
            ),
            None,
            torch.float32,
        ),
        "mixtral": (
            MixtralConfig(
                **{**shape, "intermediate_size": 16},
                num_key_value_heads=2,
                num_local_experts=8,
                num_experts_per_tok=2,
                rope_theta=10000.0,
                sliding_window=8,
            ),
            {"rope_theta": 10000.0},
            torch.float32,
        ),
        "olmoe": (
            OlmoeConfig(
                **{**shape, "intermediate_size": 16},
                num_key_value_heads=2,
                num_experts=8,
                num_experts_per_tok=3,
                rope_theta=10000.0,
            ),
            None,
            torch.float32,
        ),
        # The checkpoint has the experts of a layer in two tensors.
        "granitemoe": (
            GraniteMoeConfig(
                **{**shape, "intermediate_size": 16},
                num_key_value_heads=2,
                num_local_experts=8,
                num_experts_per_tok=3,
                rope_theta=10000.0,
                embedding_multiplier=3.5,
                residual_multiplier=0.6,
                attention_multiplier=0.3,
                logits_scaling=3.0,
                attention_bias=True,
            ),
            None,
            torch.float32,
        ),
        # Of 4 groups of experts, a token uses 2. Layer 0 has no experts.
        "glm4_moe": (
            Glm4MoeConfig(
                **{**shape, "num_hidden_layers": 3},
                num_key_value_heads=2,
                head_dim=16,
                attention_bias=True,
                use_qk_norm=True,
                n_routed_experts=8,
                num_experts_per_tok=3,
                moe_intermediate_size=16,
                n_group=4,
                topk_group=2,
                routed_scaling_factor=1.5,
                num_nextn_predict_layers=0,
            ),
            None,
            torch.float32,
        ),
        # The experts of a layer are in two tensors, in which gate and up alternate. Layer 0 has a window.
        "gpt_oss": (GptOssConfig(**gpt_oss_shape()), None, torch.float32),
        "bfloat16": (llama2, None, torch.bfloat16),
        "float16": (llama2, None, torch.float16),
        **small_families(),
    }


def small_families():
    """Returns the same for families with small checkpoints. Windows are shorter than the longest prompt."""
    shape = SMALL
    query_growth = dict(
        YARN_ROPE, rope_theta=10000.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5
    )
    by_layer = ["sliding_attention", "full_attention"]
    configs = {
        # A prompt of 40 tokens has three factors of its queries.
        "ministral3": Ministral3Config(
            **shape, rope_parameters=dict(query_growth, original_max_position_embeddings=16)
        ),
        "olmo3": Olmo3Config(
            **{**shape, "head_dim": 6},
            sliding_window=12,
            layer_types=by_layer,
            rope_parameters={
                "full_attention": dict(YARN_ROPE, rope_theta=10000.0, original_max_position_embeddings=16),
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        ),
        "exaone4": Exaone4Config(**shape, sliding_window=12, sliding_window_pattern=2, layer_types=by_layer),
        "apertus": ApertusConfig(**shape, rope_parameters=dict(LLAMA3_ROPE, rope_theta=10000.0)),
        "arcee": ArceeConfig(**shape, attention_bias=True, mlp_bias=True),
        # Q, K and V are as wide as the residual stream.
        "helium": HeliumConfig(**{**shape, "head_dim": 6}, attention_bias=True),
        "ernie4_5": Ernie4_5Config(**{**shape, "tie_word_embeddings": True}, use_bias=True),
        "hunyuan": HunYuanDenseV1Config(
            **shape,
            attention_bias=True,
            rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 5.0, "factor": 1.0},
        ),
        "glm": GlmConfig(**shape),
        "glm4": Glm4Config(**shape),
        "cohere": CohereConfig(**{**cohere_shape(shape), "attention_bias": True}),
        "cohere2": Cohere2Config(**cohere_shape(shape), sliding_window=12, layer_types=by_layer),
    }
    return {name: (config, None, torch.float32) for name, config in configs.items()}


def cohere_shape(shape):
    """Cohere has no head_dim, and the epsilon of its norms has another name."""
    left_out = ("head_dim", "rms_norm_eps")
    return {
        **{key: value for key, value in shape.items() if key not in left_out},
        "layer_norm_eps": 1e-5,
        "logit_scale": 0.3,
        "tie_word_embeddings": True,
    }


def gpt_oss_shape():
    left_out = ("tie_word_embeddings",)
    return {
        **{key: value for key, value in SHAPE.items() if key not in left_out},
        "intermediate_size": 32,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "sliding_window": 12,
        "rope_parameters": dict(
            YARN_ROPE, rope_theta=10000.0, original_max_position_embeddings=16, truncate=False
        ),
    }


def wrappers():
    """Returns {name: (config, whether tensors have the names of newer files)}."""
    text = dict(SMALL, num_hidden_layers=1)
    gemma = dict(
        SMALL,
        query_pre_attn_scalar=5,
        sliding_window=12,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    )
    sections = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    qwen2 = {key: value for key, value in text.items() if key != "head_dim"}
    return {
        "gemma3_vision": (Gemma3Config(text_config=gemma, vision_config=VISION, tie_word_embeddings=False), False),
        "mistral3_vision": (
            Mistral3Config(
                text_config=dict(text, model_type="mistral", sliding_window=None),
                vision_config=dict(VISION, model_type="pixtral"),
                tie_word_embeddings=False,
            ),
            True,
        ),
        "ministral3_vision": (
            Mistral3Config(
                text_config=dict(text, model_type="ministral3"),
                vision_config=dict(VISION, model_type="pixtral"),
                tie_word_embeddings=True,
            ),
            False,
        ),
        "llava": (
            LlavaConfig(
                text_config=dict(text, model_type="llama"),
                vision_config=dict(VISION, model_type="siglip_vision_model"),
                tie_word_embeddings=False,
            ),
            False,
        ),
        "internvl": (
            InternVLConfig(
                text_config=dict(text, model_type="qwen3"),
                vision_config=dict(VISION, image_size=[28, 28], patch_size=[14, 14]),
                tie_word_embeddings=False,
            ),
            True,
        ),
        "smolvlm": (
            SmolVLMConfig(
                text_config=dict(text, model_type="llama"), vision_config=VISION, tie_word_embeddings=False
            ),
            False,
        ),
        "qwen2_5_vl": (
            Qwen2_5_VLConfig(
                text_config=dict(qwen2, rope_parameters=dict(sections, mrope_section=[1, 1, 1])),
                vision_config=QWEN_VISION,
            ),
            False,
        ),
        "qwen3_vl": (
            Qwen3VLConfig(
                text_config=dict(text, rope_parameters=dict(sections, mrope_interleaved=True)),
                vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0], num_position_embeddings=16),
            ),
            False,
        ),
    }


def is_wrapper(config):
    return config.get_text_config() is not config


def is_plain(config):
    return getattr(config, "hidden_act", "") in ("relu2", "xielu")


def random_model(config, seed):
    """Sets weights that are large enough for tokens and positions to matter. The usual initialisation is too small."""
    generator = torch.Generator().manual_seed(seed)
    kind = AutoModelForImageTextToText if is_wrapper(config) else AutoModelForCausalLM
    model = kind.from_config(config, dtype=torch.float32)
    config = config.get_text_config()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if "vision" in name or "visual" in name or "projector" in name or "connector" in name:
                continue
            if name.endswith("norm.weight"):  # The norms of Gemma add 1 to their weights.
                tensor.copy_((0 if "gemma" in config.model_type else 1) + 0.3 * noise)
            elif tensor.dim() == 1:
                tensor.copy_(0.5 * noise)
            elif "embed" in name:  # With a large tied embedding, the model repeats its input.
                tensor.copy_(noise * (0.3 if model.config.tie_word_embeddings else 1.0))
            elif name.endswith("gate.weight"):  # Of a router, or of a shared expert.
                tensor.copy_(noise * 3.0 / tensor.shape[-1] ** 0.5)
            else:
                # Activations that square would make the MLP outweigh attention.
                size = 0.6 if "up_proj" in name and is_plain(config) else 1.5
                tensor.copy_(noise * size / tensor.shape[-1] ** 0.5)
        for name, tensor in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                tensor.copy_(0.2 * torch.randn(tensor.shape, generator=generator))
    return model


def checkpoint_tensors(model):
    """Returns the tensors under their names in a checkpoint. In memory, the experts of a layer are one tensor."""
    if not hasattr(model.config, "num_experts_per_tok"):
        return dict(model.named_parameters())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def write_directory(path, model, legacy_keys, dtype):
    path.mkdir(parents=True, exist_ok=True)
    tensors = checkpoint_tensors(model)
    # Published checkpoints have these buffers, and transformers leaves them undefined otherwise.
    tensors |= {name: tensor for name, tensor in model.state_dict().items() if ".act_fn." in name}
    tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in tensors.items()}
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


def write_mxfp4_directory(path, model):
    """Writes a folder of gpt-oss whose experts are random numbers of 4 bits, stored as in published checkpoints."""
    write_directory(path, model, None, torch.bfloat16)
    tensors = load_file(path / "model.safetensors")
    generator = torch.Generator().manual_seed(len(tensors))
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, cols, rows = tensors.pop(name).shape
        groups = (experts, rows, cols // 32)
        tensors[name + "_blocks"] = torch.randint(0, 256, (*groups, 16), generator=generator, dtype=torch.uint8)
        # Weights are at most 6 times 2^-5 .. 2^-3.
        tensors[name + "_scales"] = torch.randint(122, 125, groups, generator=generator, dtype=torch.uint8)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (path / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def write_wrapper_directory(path, model, has_new_names):
    """Writes the folder as transformers does, or with the names of tensors that it has in memory."""
    model.save_pretrained(path)
    (path / "generation_config.json").unlink()
    config = json.loads((path / "config.json").read_text())
    config.pop("transformers_version", None)
    (path / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    if has_new_names:
        tied = model._tied_weights_keys if model.config.tie_word_embeddings else {}
        tensors = {
            name: tensor.detach().contiguous() for name, tensor in model.named_parameters() if name not in (tied or {})
        }
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def load_model(path):
    config = transformers.AutoConfig.from_pretrained(path)
    kind = AutoModelForImageTextToText if is_wrapper(config) else AutoModelForCausalLM
    return kind.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


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


def routing_of(model, tokens):
    """Returns the experts that each layer with experts chooses, and the least distance of scores around a choice."""
    experts, margins = {}, []

    def note(router, _, output):
        logits, _, chosen = output
        experts.setdefault(router, set()).update(chosen.flatten().tolist())
        bias = getattr(router, "e_score_correction_bias", None)
        scores = torch.softmax(logits, -1) if bias is None else logits.sigmoid() + bias
        is_chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, chosen, True)
        groups = is_chosen.view(len(scores), getattr(router, "num_group", 1), -1)
        is_open = groups.any(-1, keepdim=True).expand_as(groups).reshape(is_chosen.shape)
        last = scores.masked_fill(~is_chosen, float("inf")).min(-1)[0]
        following = scores.masked_fill(is_chosen | ~is_open, -float("inf")).max(-1)[0]
        margins.append((last - following).min().item())

    routers = [module for module in model.modules() if type(module).__name__.lower().endswith("topkrouter")]
    hooks = [router.register_forward_hook(note) for router in routers]
    logits_of(model, tokens)
    for hook in hooks:
        hook.remove()
    return experts, min(margins, default=float("inf"))


def has_clear_routes(model, texts):
    """Tells whether each expert is chosen somewhere, and no choice is so close that rounding could change it."""
    used = {}
    for text in texts:
        experts, margin = routing_of(model, text)
        if margin <= MIN_ROUTE_MARGIN:
            return False
        for router, chosen in experts.items():
            used.setdefault(router, set()).update(chosen)
    return all(len(chosen) == router.num_experts for router, chosen in used.items())


def check_window_matters(model, prompt):
    """Checks that the sliding window changes the logits of a long prompt."""
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    if window is None:
        return
    if model.config.model_type not in ("mistral", "mixtral", "phi3", "qwen2"):
        assert set(model.config.get_text_config().layer_types) == {"full_attention", "sliding_attention"}
        return
    rows = logits_of(model, prompt)
    shown = logits_of(model, [(prompt[0] + 1) % SHAPE["vocab_size"]] + prompt[1:])
    layers = model.config.num_hidden_layers
    if model.config.model_type in ("mistral", "mixtral", "phi3"):
        assert not torch.equal(rows[window - 1], shown[window - 1])
        # Products by experts add in an order that depends on the number of their rows.
        assert torch.allclose(rows[layers * window :], shown[layers * window :], rtol=0, atol=1e-5)
    else:
        assert model.config.layer_types == ["full_attention", "sliding_attention"]


def write_family(name, config, write):
    path = ROOT / "models" / name
    path.mkdir(parents=True, exist_ok=True)
    min_distinct = MIN_DISTINCT_OF_SMALL if config.get_text_config().vocab_size < SHAPE["vocab_size"] else MIN_DISTINCT
    for seed in range(1, 200):
        generator = numpy.random.RandomState(seed)
        vocab_size = config.get_text_config().vocab_size
        prompts = [generator.randint(3, vocab_size, length).tolist() for length in PROMPT_LENGTHS]
        write(path, random_model(config, seed))
        model = load_model(path)
        runs = []
        for prompt in prompts:
            tokens, margin = greedy(model, prompt, NUM_GREEDY)
            if margin <= MIN_MARGIN or len(set(tokens)) < min_distinct:
                break
            runs.append((tokens, margin))
        if len(runs) == len(prompts) and has_clear_routes(model, [p + t for p, (t, _) in zip(prompts, runs)]):
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
    texts = [config.get_text_config() for config, _ in wrappers().values()]
    configs.update({type(config).__name__: type(config) for config in texts})
    del configs["Glm4MoeConfig"]  # Its defaults fit no model: 96 heads do not divide 4096.
    defaults = {}
    for name, make in sorted(configs.items()):
        config = make()
        layers = range(config.num_hidden_layers)
        types = getattr(config, "layer_types", None)
        window = getattr(config, "sliding_window", None) or 0
        slides = [types is None or types[i] == "sliding_attention" for i in layers]
        ropes = config.rope_parameters
        full = ropes.get("full_attention", ropes)
        rotates = slides if config.model_type in ("cohere2", "exaone4") else [True for _ in layers]
        eos = getattr(config, "eos_token_id", None)
        bos = getattr(config, "bos_token_id", None)
        # Arcee has defaults outside of its default vocabulary, which count as none.
        eos = [token for token in (eos if isinstance(eos, list) else [eos]) if token is not None]
        eos = [token for token in eos if token < config.vocab_size]
        defaults[config.model_type] = {
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "num_heads": config.num_attention_heads,
            "num_kv_heads": config.num_key_value_heads,
            "head_dim": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            "vocab_size": config.vocab_size,
            "max_position_embeddings": config.max_position_embeddings,
            "rms_norm_eps": getattr(config, "rms_norm_eps", None) or config.layer_norm_eps,
            "rope_theta": full["rope_theta"],
            "rope_type": full["rope_type"],
            "rotary_part": full.get("partial_rotary_factor", 1.0),
            "window_rope_theta": ropes["sliding_attention"]["rope_theta"] if "sliding_attention" in ropes else 0,
            "tie_word_embeddings": getattr(config, "tie_word_embeddings", False),
            "bos": -1 if bos is None or bos >= config.vocab_size else bos,
            "eos": eos,
            "windows": [window if slides[i] else 0 for i in layers],
            "rotates": [bool(flag) for flag in getattr(config, "no_rope_layers", rotates)],
            "activation": getattr(config, "hidden_activation", None) or config.hidden_act,
            "qkv_bias": getattr(
                config, "attention_bias", config.model_type in ("qwen2", "qwen2_5_vl_text", "qwen2_moe")
            ),
        }
        if hasattr(config, "num_experts_per_tok"):
            defaults[config.model_type]["experts"] = {
                "num_experts": getattr(config, "num_local_experts", None) or config.num_experts,
                "top_k": config.num_experts_per_tok,
                "width": getattr(config, "moe_intermediate_size", config.intermediate_size),
                "normalizes": getattr(config, "norm_topk_prob", True),
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


class TopNSigma:
    """What llama_sampler_top_n_sigma of llama.cpp does, which transformers does not have."""

    def __init__(self, n):
        self.n = n

    def __call__(self, input_ids, scores):
        finite = scores[torch.isfinite(scores)]
        return scores.masked_fill(scores < finite.max() - self.n * finite.std(correction=0), -float("inf"))


class ExcludeTopChoices:
    """apply_xtc of mlx-lm, which transformers does not have, for a draw that it changes."""

    def __init__(self, threshold):
        self.threshold = threshold

    def __call__(self, input_ids, scores):
        import mlx.core
        from mlx_lm.sample_utils import apply_xtc

        return torch.tensor(numpy.array(apply_xtc(mlx.core.array(scores.numpy()), 1.0, self.threshold, [])))


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
        {"top_n_sigma": 1.0},
        {"top_n_sigma": 2.0, "temperature": 1.6},
        {"top_n_sigma": 2.2, "temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
        {"xtc_threshold": 0.1},
        {"xtc_threshold": 0.02, "temperature": 1.6},
        {"xtc_threshold": 0.06, "temperature": 0.8, "top_k": 20, "top_p": 0.95, "min_p": 0.02},
    ]
    cases = []
    for vocab_size, spread in ((40, 2.0), (150, 1.0)):
        logits = (generator.randn(vocab_size) * spread).astype(numpy.float32)
        seen = generator.randint(0, vocab_size, 12).tolist()
        for setting in settings:
            steps = LogitsProcessorList()
            if "repetition_penalty" in setting:
                steps.append(RepetitionPenaltyLogitsProcessor(setting["repetition_penalty"]))
            if "top_n_sigma" in setting:
                steps.append(TopNSigma(setting["top_n_sigma"]))
            if "temperature" in setting:
                steps.append(TemperatureLogitsWarper(setting["temperature"]))
            if "top_k" in setting:
                steps.append(TopKLogitsWarper(setting["top_k"]))
            if "top_p" in setting:
                steps.append(TopPLogitsWarper(setting["top_p"]))
            if "min_p" in setting:
                steps.append(MinPLogitsWarper(setting["min_p"]))
            if "xtc_threshold" in setting:
                steps.append(ExcludeTopChoices(setting["xtc_threshold"]))
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
            write_family(name, config, lambda path, model: write_directory(path, model, legacy_keys, dtype))
    if wanted("gpt_oss_mxfp4"):
        write_family("gpt_oss_mxfp4", GptOssConfig(**gpt_oss_shape()), write_mxfp4_directory)
    for name, (config, has_new_names) in wrappers().items():
        if wanted(name):
            write_family(name, config, lambda path, model: write_wrapper_directory(path, model, has_new_names))
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
