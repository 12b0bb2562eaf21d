# SPDX-License-Identifier: Apache-2.0
"""What a row of the comparison asks of every engine, and the prompts and figures that all loads share."""

import dataclasses
import json
import random


@dataclasses.dataclass(frozen=True)
class Batch:
    """Sequences that arrive together. Each has a prompt of `prompt` tokens and generates `output` tokens."""
    model: str
    sequences: int
    prompt: int
    output: int
    shared: int = 0  # All prompts begin with these tokens, which an engine may compute once.
    beams: bool = False  # The sequences are the beams of one request.


@dataclasses.dataclass(frozen=True)
class Clients:
    """Clients that send requests in a closed loop: at most `clients` requests run at a time."""
    model: str
    requests: tuple[tuple[int, int], ...]  # (prompt tokens, output tokens) of each.
    clients: int
    pool_tokens: int  # Tokens whose K and V fit into the engine's memory, where the engine can be told.
    shared: int = 0  # All prompts begin with these tokens. Every engine computes them before the load is measured.
    fills_pool: bool = False  # The requests need more than the pool, so an engine must have exactly this one.


@dataclasses.dataclass(frozen=True)
class Pair:
    """Manager and worker over gRPC, and the same work in one process. Each client sends four requests in a row."""
    model: str
    sequences: int
    prompt: int
    output: int
    one_stream: bool = False  # All requests are sent on one stream.


class Shape:
    """Sizes that follow from the configuration of a checkpoint."""

    def __init__(self, folder):
        self.folder = folder
        self.config = json.loads((folder / "config.json").read_text())

    @property
    def vocab_size(self):
        return self.config["vocab_size"]

    @property
    def token_bytes(self):
        """The bytes of K and V of one token in 16 bits."""
        return (2 * 2 * self.config["num_hidden_layers"] * self.config["num_key_value_heads"] *
                self.config["head_dim"])

    @property
    def weight_bytes(self):
        return (self.folder / "model.safetensors").stat().st_size

    @property
    def read_bytes(self):
        """The bytes of 16-bit weights that a decode step reads."""
        if self.config["tie_word_embeddings"]:
            return self.weight_bytes
        return self.weight_bytes - self._embedding_bytes

    @property
    def prompt_operations(self):
        """The multiplications and additions of a prompt token's matrix products. Attention is not counted, nor is the
        output matrix, which only the last token needs."""
        num_embeddings = 1 if self.config["tie_word_embeddings"] else 2
        return self.weight_bytes - num_embeddings * self._embedding_bytes  # A weight has two bytes and two operations.

    @property
    def _embedding_bytes(self):
        return 2 * self.config["vocab_size"] * self.config["hidden_size"]


def _log_normal(draw, low, high, median, sigma):
    while True:
        value = round(draw.lognormvariate(0, sigma) * median)
        if low <= value <= high:
            return value


def chat_requests(count, seed=7):
    """Returns lengths (prompt 32 .. 512, output 16 .. 256). Most are short."""
    draw = random.Random(seed)
    return [(_log_normal(draw, 32, 512, 150, 0.9), _log_normal(draw, 16, 256, 80, 0.8)) for _ in range(count)]


def prompts(lengths, shared, vocab_size, seed):
    """Returns random prompts of these lengths, which begin with the same `shared` tokens."""
    def tokens(key, count):
        draw = random.Random(key)
        return [draw.randrange(3, vocab_size) for _ in range(count)]

    common = tokens(seed << 32, shared)
    return [common + tokens((seed << 32) + i + 1, length - shared) for i, length in enumerate(lengths)]


def quantile(values, share):
    values = sorted(values)
    return values[max(0, min(len(values) - 1, -int(-share * len(values) // 1) - 1))] if values else 0.0


def served_figures(input_tokens, output_tokens, seconds, ttft, itl, failed):
    """Returns the figures of a load under the names of `quirectl bench`. The times are in seconds."""
    return {"total_token_throughput": (input_tokens + output_tokens) / seconds,
            "output_throughput": output_tokens / seconds,
            "median_ttft_ms": 1e3 * quantile(ttft, 0.5), "p99_ttft_ms": 1e3 * quantile(ttft, 0.99),
            "median_itl_ms": 1e3 * quantile(itl, 0.5), "p99_itl_ms": 1e3 * quantile(itl, 0.99),
            "duration": seconds, "failed": failed}
