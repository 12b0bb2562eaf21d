# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/models/gpu: small models of each family with what Hugging Face transformers computes, in float32.

GPUs have kernels for heads of certain sizes, and compute with 16 bits. So heads have 16 or 32 dimensions, the stored
weights are float16, and a text counts only if rounding to float16 cannot change a choice. The rest, and how to run it,
is as in models.py:
    python3 tools/goldens/gpu_models.py [--only NAME,NAME...]
"""

import argparse
import models
import torch
import transformers
from transformers import (
    ApertusConfig,
    ArceeConfig,
    Cohere2Config,
    CohereConfig,
    Ernie4_5Config,
    Exaone4Config,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    Glm4MoeConfig,
    GlmConfig,
    GraniteConfig,
    GraniteMoeConfig,
    HeliumConfig,
    HunYuanDenseV1Config,
    LlamaConfig,
    MinistralConfig,
    Ministral3Config,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Olmo3Config,
    OlmoeConfig,
    Phi3Config,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SeedOssConfig,
    SmolLM3Config,
)

models.MIN_MARGIN = 0.012
models.MIN_ROUTE_MARGIN = 0.004

SHAPE = dict(
    models.SHAPE,
    intermediate_size=48,
    num_attention_heads=2,
    num_key_value_heads=1,
    vocab_size=64,
    pad_token_id=0,
)
HEADS_OF_16 = dict(SHAPE, head_dim=16)
HEADS_OF_32 = dict(SHAPE, head_dim=32)  # Half of the dimensions rotate.
DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
BY_LAYER = ["sliding_attention", "full_attention"]


def families_with_experts():
    """Returns {name: config}."""
    experts = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16)
    narrow = {**SHAPE, "intermediate_size": 16}
    few_of_8 = dict(num_local_experts=8, num_experts_per_tok=2, rope_theta=10000.0)
    return {
        # Layer 1 has no experts in the first two.
        "qwen3_moe": Qwen3MoeConfig(
            **HEADS_OF_16, **experts, rope_theta=1000000.0, norm_topk_prob=True, mlp_only_layers=[1]
        ),
        "qwen2_moe": Qwen2MoeConfig(
            **SHAPE,
            **experts,
            mlp_only_layers=[1],
            shared_expert_intermediate_size=24,
            rope_theta=1000000.0,
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=1,
        ),
        "mixtral": MixtralConfig(**narrow, **few_of_8, sliding_window=4),
        "olmoe": OlmoeConfig(**narrow, num_experts=8, num_experts_per_tok=2, rope_theta=10000.0),
        "granitemoe": GraniteMoeConfig(
            **narrow,
            **few_of_8,
            embedding_multiplier=3.5,
            residual_multiplier=0.6,
            attention_multiplier=0.3,
            logits_scaling=3.0,
            attention_bias=True,
        ),
        # Of 4 groups of experts, a token uses 2. Layer 0 has no experts.
        "glm4_moe": Glm4MoeConfig(
            **HEADS_OF_32,
            attention_bias=True,
            use_qk_norm=True,
            n_routed_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            n_group=4,
            topk_group=2,
            routed_scaling_factor=1.5,
            num_nextn_predict_layers=0,
        ),
    }


def families():
    """Returns {name: config}. Windows are shorter than the longest prompt."""
    heads = HEADS_OF_16
    cohere = models.cohere_shape(SHAPE)
    return {
        "llama3": LlamaConfig(
            **{**heads, "tie_word_embeddings": True},
            rope_parameters=dict(models.LLAMA3_ROPE, rope_theta=500000.0),
        ),
        "mistral": MistralConfig(**heads, rope_theta=10000.0, sliding_window=8),
        "qwen2": Qwen2Config(
            **SHAPE, rope_theta=1000000.0, use_sliding_window=True, sliding_window=12, max_window_layers=1
        ),
        "qwen3": Qwen3Config(**heads, rope_theta=1000000.0),
        "smollm3": SmolLM3Config(
            **{**SHAPE, "tie_word_embeddings": True},
            rope_theta=10000.0,
            no_rope_layer_interval=2,
            use_sliding_window=True,
            sliding_window=12,
        ),
        "seed_oss": SeedOssConfig(**heads, rope_theta=10000.0, residual_dropout=0.0),
        "ministral": MinistralConfig(**heads, rope_theta=10000.0, sliding_window=12, layer_types=BY_LAYER),
        "helium": HeliumConfig(**heads, attention_bias=True),
        "ernie4_5": Ernie4_5Config(**{**heads, "tie_word_embeddings": True}, use_bias=True),
        "olmo2": Olmo2Config(**SHAPE, rope_theta=10000.0),
        "olmo3": Olmo3Config(
            **heads,
            sliding_window=12,
            layer_types=BY_LAYER,
            rope_parameters={
                "full_attention": dict(models.YARN_ROPE, rope_theta=10000.0, original_max_position_embeddings=16),
                "sliding_attention": DEFAULT_ROPE,
            },
        ),
        "exaone4": Exaone4Config(**heads, sliding_window=12, sliding_window_pattern=2, layer_types=BY_LAYER),
        "granite": GraniteConfig(
            **SHAPE,
            rope_theta=10000.0,
            embedding_multiplier=3.5,
            residual_multiplier=0.6,
            attention_multiplier=0.3,
            logits_scaling=3.0,
            attention_bias=True,
            mlp_bias=True,
        ),
        "gemma": GemmaConfig(**heads, rope_theta=10000.0),
        # The caps are so low that they change the scores and the logits.
        "gemma2": Gemma2Config(
            **heads,
            rope_theta=10000.0,
            sliding_window=12,
            query_pre_attn_scalar=5,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        ),
        "gemma3": Gemma3TextConfig(
            **heads,
            sliding_window=12,
            query_pre_attn_scalar=5,
            layer_types=BY_LAYER,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": DEFAULT_ROPE,
            },
        ),
        "phi3": Phi3Config(
            **{**SHAPE, "hidden_size": 64},
            sliding_window=12,
            rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=0.5),
        ),
        "glm": GlmConfig(**HEADS_OF_32),
        "glm4": Glm4Config(**HEADS_OF_32),
        # A prompt of 22 tokens and its continuation have three factors of their queries.
        "ministral3": Ministral3Config(
            **heads,
            rope_parameters=dict(
                models.YARN_ROPE,
                rope_theta=10000.0,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.5,
                original_max_position_embeddings=16,
            ),
        ),
        "apertus": ApertusConfig(**heads, rope_parameters=dict(models.LLAMA3_ROPE, rope_theta=10000.0)),
        "arcee": ArceeConfig(**heads, attention_bias=True, mlp_bias=True),
        "hunyuan": HunYuanDenseV1Config(
            **heads,
            attention_bias=True,
            rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 5.0, "factor": 1.0},
        ),
        "cohere": CohereConfig(**{**cohere, "attention_bias": True}),
        "cohere2": Cohere2Config(**cohere, sliding_window=12, layer_types=BY_LAYER),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of models, separated by commas")
    arguments = parser.parse_args()
    only = arguments.only and arguments.only.split(",")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)

    def write(configs, prompt_lengths, num_greedy, min_distinct):
        models.PROMPT_LENGTHS = prompt_lengths
        models.NUM_GREEDY = num_greedy
        models.MIN_DISTINCT_OF_SMALL = min_distinct
        for name, config in configs.items():
            if only is None or name in only:
                models.write_family(
                    f"gpu/{name}",
                    config,
                    lambda path, model: models.write_directory(path, model, None, torch.float16),
                )

    write(families(), (5, 22), 16, 6)
    # Choices of experts must be clear, too, so there are fewer tokens.
    write(families_with_experts(), (4, 10), 6, 3)


if __name__ == "__main__":
    main()
