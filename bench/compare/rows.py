# SPDX-License-Identifier: Apache-2.0
"""The rows of the comparison: what each engine runs, and which of its figures are shown."""

import dataclasses
import json
import random
import typing

KV_MODES = {"one stream per sequence": "-no-kvu", "one stream": "-kvu"}
BLOCK_TOKENS = 16


@dataclasses.dataclass
class Figure:
    key: str
    title: str
    higher_is_better: bool = True


@dataclasses.dataclass
class Row:
    name: str
    figures: list[Figure]
    quire: typing.Callable[[], dict]
    llama: dict[str, typing.Callable[[], dict]]


DECODE = [Figure("decode_tokens_per_s", "tokens/s")]
DECODE_AND_BYTES = DECODE + [Figure("kv_bytes", "bytes of K and V", higher_is_better=False)]
PREFILL = [Figure("prefill_tokens_per_s", "tokens/s")]
SERVED = [Figure("total_token_throughput", "tokens/s in all"),
          Figure("output_throughput", "output tokens/s"),
          Figure("median_ttft_ms", "TTFT p50, ms", higher_is_better=False),
          Figure("p99_ttft_ms", "TTFT p99, ms", higher_is_better=False),
          Figure("median_itl_ms", "ITL p50, ms", higher_is_better=False),
          Figure("p99_itl_ms", "ITL p99, ms", higher_is_better=False),
          Figure("failed", "requests failed", higher_is_better=False)]


def log_normal(draw, low, high, median, sigma):
    while True:
        value = round(draw.lognormvariate(0, sigma) * median)
        if low <= value <= high:
            return value


def chat_requests(count, seed=7):
    """Returns lengths (prompt 32 .. 512, output 16 .. 256). Most are short."""
    draw = random.Random(seed)
    return [(log_normal(draw, 32, 512, 150, 0.9), log_normal(draw, 16, 256, 80, 0.8)) for _ in range(count)]


def rows(quire, llama):
    def config(model):
        return json.loads((quire.models / model / "config.json").read_text())

    def token_bytes(model):
        """Returns the bytes of K and V of one token."""
        shape = config(model)
        return 2 * 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * shape["head_dim"]

    def read_bytes(model):
        """Returns the bytes of weights that a decode step of a model with untied embedding reads."""
        shape = config(model)
        weights = (quire.models / model / "model.safetensors").stat().st_size
        return weights if shape["tie_word_embeddings"] else weights - 2 * shape["vocab_size"] * shape["hidden_size"]

    def with_bandwidth(run, model):
        """Adds the bandwidth that a sequence's tokens need, as a share of that measured before and after."""
        def paired():
            before = quire.bandwidth()
            report = run()
            report["bandwidth_gb_s"] = (before + quire.bandwidth()) / 2
            report["bandwidth_share"] = (report["decode_tokens_per_s"] * read_bytes(model) / 1e9 /
                                         report["bandwidth_gb_s"])
            return report
        return paired

    def decode(name, model, sequences, prompt, output, paired=False):
        ours = lambda: quire.worker(model, sequences=sequences, prompt=prompt, output=output)
        theirs = {title: lambda mode=mode: llama.batched(model, mode, prompt, output, sequences)
                  for title, mode in KV_MODES.items() if sequences > 1 or mode == "-no-kvu"}
        if not paired:
            return Row(name, DECODE, ours, theirs)
        return Row(name, DECODE + [Figure("bandwidth_share", "share of the bandwidth"),
                                   Figure("bandwidth_gb_s", "bandwidth, GB/s")],
                   with_bandwidth(ours, model), {title: with_bandwidth(run, model) for title, run in theirs.items()})

    def prefill(name, model, prompt):
        return Row(name, PREFILL, lambda: quire.worker(model, sequences=1, prompt=prompt, output=3),
                   {"llama-bench": lambda: llama.prefill(model, prompt)})

    def shared(name, model, sequences, prompt, output, ours):
        """llama.cpp shares the prompt by copying its sequence. It runs only the steps of a beam search."""
        def theirs(mode):
            report = llama.batched(model, mode, prompt, output, sequences, shared=True)
            report["kv_bytes"] = report["kv_tokens"] * token_bytes(model)
            return report
        return Row(name, DECODE_AND_BYTES, lambda: quire.worker(model, output=output, **ours),
                   {title: lambda mode=mode: theirs(mode) for title, mode in KV_MODES.items()})

    def serve(name, model, requests, clients, pool_tokens, shared_tokens=0):
        """Both engines' pools hold `pool_tokens`. With one stream per sequence, each has an equal part of the pool."""
        vocab_size = config(model)["vocab_size"]
        return Row(name, SERVED,
                   lambda: quire.serve(model, requests, clients, pool_tokens // BLOCK_TOKENS, shared_tokens),
                   {title: lambda mode=mode: llama.serve(model, mode, requests, clients, pool_tokens, vocab_size,
                                                         shared_tokens) for title, mode in KV_MODES.items()})

    def pair(name, model, sequences, prompt, output, multiplex=False):
        """Compares the services with the same work in one process. With `multiplex` all requests are on one stream. The
        worker runs `sequences` together. The services have as many clients, and each client sends four requests
        one after the other."""
        def run():
            alone = quire.worker(model, sequences=sequences, prompt=prompt, output=output)
            served = quire.serve(model, [(prompt, output)] * sequences * 4, sequences,
                                 sequences * (prompt + output + 2 * BLOCK_TOKENS) * 2 // BLOCK_TOKENS,
                                 multiplex=multiplex)
            weights = (quire.models / model / "model.safetensors").stat().st_size
            pool = sequences * (prompt + output + 2 * BLOCK_TOKENS) * 2 * token_bytes(model)
            return {"share": served["output_throughput"] / alone["total_tokens_per_s"],
                    "overhead_us": alone["median_overhead_us"],
                    "memory_ratio": served["peak_bytes"] / (weights + pool)}
        return Row(name, [Figure("share", "output tokens/s, share of the worker alone"),
                          Figure("overhead_us", "no kernel, us per step, p50", higher_is_better=False),
                          Figure("memory_ratio", "peak memory / (weights + pool)", higher_is_better=False)], run, {})

    prefix = 1024
    return [
        decode("decode 1", "m500", 1, 128, 32, paired=True),
        decode("decode 1 at 4096", "m500", 1, 4096, 16),
        decode("decode 16", "m500", 16, 128, 32),
        decode("decode 64", "m500", 64, 128, 16),
        prefill("prefill 512", "m500", 512),
        shared("64 sequences on 1024 tokens", "m500", 64, prefix, 16,
               {"sequences": 64, "prompt": prefix + 1, "shared": prefix}),
        shared("8 beams on 2048 tokens", "m500", 8, 2048, 16,
               {"sequences": 1, "beams": 8, "prompt": 2048}),
        decode("decode 1 at 4096, GQA 8", "gqa8", 1, 4096, 32),
        decode("decode 16, GQA 8", "gqa8", 16, 128, 32),
        prefill("prefill 512, GQA 8", "gqa8", 512),
        serve("mix, 16 clients", "m500", chat_requests(32), 16, 16384),
        serve("16 requests on 1024 tokens", "m500", [(prefix + 16, 32)] * 16, 16, 16 * 1280, shared_tokens=prefix),
        serve("a third of the pool, 16 clients", "s15m", [(256, 256)] * 48, 16, 16 * 512 // 3 // 256 * 256),
        serve("mix, 32 clients, small model", "s15m", chat_requests(192), 32, 32 * 1024),
        pair("the pair, 16 sequences", "m500", 16, 128, 128),
        pair("the pair, 16 sequences, small model", "s15m", 16, 128, 256),
        pair("the pair, 16 sequences, small model, one stream", "s15m", 16, 128, 256, multiplex=True),
    ]
