# SPDX-License-Identifier: Apache-2.0
"""Makes initial weights that can already copy words. A small model with random initial weights learns this very late.

A story uses the same names and things from beginning to end. When a model has learned the grammar, the main thing left
to learn is to copy such a word from the earlier text. Some attention heads therefore start as copying heads:

  embedding   every token carries the direction `common`, and each class of copied words carries a direction of its own
  query       reads `common`, key reads the class direction. Both write into the slowest rotary pair, whose angle hardly
              changes within a story. So a query attends to all earlier words of the class, at any distance.
  value       projects onto random directions, and output is its transpose. So the attended words become more likely.

Training changes these weights like all others.
"""

import torch
import transformers

IDENTITY_DEVIATION = 0.1
COMMON_NORM = 1.0
CLASS_NORM = 1.5
READ_STRENGTH = 0.8
WRITE_STRENGTH = 0.3
COPYING_LAYERS = (1, 3)


@torch.no_grad()
def start_as_copying(model: transformers.LlamaForCausalLM, token_classes: list[list[int]]) -> None:
    """Prepares the embedding and the copying layers; key-value head i copies the tokens of token_classes[i]."""
    config = model.config
    assert len(token_classes) == config.num_key_value_heads, (len(token_classes), config.num_key_value_heads)
    # [1 + number of classes, hidden_size], orthonormal rows.
    directions = torch.nn.init.orthogonal_(torch.empty(1 + len(token_classes), config.hidden_size))
    common, class_directions = directions[0], directions[1:]

    embedding = torch.nn.init.normal_(model.model.embed_tokens.weight, std=IDENTITY_DEVIATION)
    embedding -= embedding @ directions.T @ directions
    embedding += COMMON_NORM * common
    for tokens, direction in zip(token_classes, class_directions):
        embedding[tokens] += CLASS_NORM * direction

    group_size = config.num_attention_heads // config.num_key_value_heads
    slowest = config.head_dim // 2 - 1
    for layer in COPYING_LAYERS:
        attention = model.model.layers[layer].self_attn
        query = attention.q_proj.weight.unflatten(0, (config.num_attention_heads, config.head_dim))
        query[:, slowest] = READ_STRENGTH * common
        key = attention.k_proj.weight.unflatten(0, (config.num_key_value_heads, config.head_dim))
        key[:, slowest] = READ_STRENGTH * class_directions
        value = torch.nn.init.orthogonal_(attention.v_proj.weight)  # [num_kv_heads * head_dim, hidden_size]
        value -= value @ directions.T @ directions
        by_head = value.unflatten(0, (config.num_key_value_heads, config.head_dim)).repeat_interleave(group_size, dim=0)
        attention.o_proj.weight.copy_(WRITE_STRENGTH * by_head.flatten(0, 1).T)
