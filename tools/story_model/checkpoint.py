# SPDX-License-Identifier: Apache-2.0
"""Writes the model directory: configuration and weights in the format of Hugging Face."""

import json
import pathlib

import safetensors.torch
import torch
import transformers

# About 1.2 million parameters; 4 query heads share 2 key-value heads.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "initializer_range": 0.05,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
}
def new_model() -> transformers.LlamaForCausalLM:
    """Returns a newly initialised model in float32, for training."""
    settings = {key: value for key, value in CONFIG.items() if key not in ("architectures", "torch_dtype")}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))


def write_model(weights: dict[str, torch.Tensor], folder: pathlib.Path) -> None:
    """Writes config, generation config and bfloat16 weights; the tied output matrix is not written twice."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.to(torch.bfloat16).contiguous() for name, weight in weights.items()
               if name != "lm_head.weight"}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    generation = {key: CONFIG[key] for key in ("bos_token_id", "eos_token_id")}
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
