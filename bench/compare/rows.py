# SPDX-License-Identifier: Apache-2.0
"""The rows of the comparison: what the engines run, and which of their figures are shown."""

import dataclasses

from work import Batch, Clients, Pair, chat_requests

ALL_WIDTHS = ("bf16", "int8", "int4")


@dataclasses.dataclass(frozen=True)
class Figure:
    key: str
    title: str
    higher_is_better: bool = True
    is_share: bool = False  # Shown in percent, and not as a ratio.


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    work: Batch | Clients | Pair
    figures: tuple[Figure, ...]
    widths: tuple[str, ...] = ("bf16",)


DECODE = Figure("decode_tokens_per_s", "decode, tokens/s")
PREFILL = Figure("prefill_tokens_per_s", "prefill, tokens/s")
BANDWIDTH = Figure("bandwidth_share", "share of the bandwidth", is_share=True)
OPERATIONS = Figure("operations_share", "share of the register probe", is_share=True)
KV_BYTES = Figure("kv_bytes", "bytes of K and V", higher_is_better=False)
SERVED = (Figure("total_token_throughput", "tokens/s in all"),
          Figure("output_throughput", "output tokens/s"),
          Figure("median_ttft_ms", "TTFT p50, ms", higher_is_better=False),
          Figure("p99_ttft_ms", "TTFT p99, ms", higher_is_better=False),
          Figure("median_itl_ms", "ITL p50, ms", higher_is_better=False),
          Figure("p99_itl_ms", "ITL p99, ms", higher_is_better=False),
          Figure("failed", "requests failed", higher_is_better=False))
PAIR = (Figure("share", "output tokens/s, share of the worker alone", is_share=True),
        Figure("overhead_us", "no kernel, us per step, p50", higher_is_better=False),
        Figure("memory_ratio", "peak memory / (weights + pool)", higher_is_better=False))

PREFIX = 1024
ROWS = (
    Row("decode 1", Batch("m500", 1, 128, 64), (DECODE, BANDWIDTH), ALL_WIDTHS),
    Row("decode 16", Batch("m500", 16, 128, 32), (DECODE,), ALL_WIDTHS),
    Row("prefill 512", Batch("m500", 1, 512, 3), (PREFILL, OPERATIONS), ALL_WIDTHS),
    Row("decode 64", Batch("m500", 64, 128, 16), (DECODE,)),
    Row("prefill 2048", Batch("m500", 1, 2048, 3), (PREFILL,)),
    Row("4096 tokens", Batch("m500", 1, 4096, 16), (PREFILL, DECODE)),
    Row("mix, 16 clients", Clients("m500", tuple(chat_requests(32)), 16, 16384), SERVED),
    Row("64 sequences on 1024 tokens", Batch("m500", 64, PREFIX + 1, 16, shared=PREFIX), (DECODE, KV_BYTES)),
    Row("8 beams on 2048 tokens", Batch("m500", 8, 2048, 16, shared=2048, beams=True), (DECODE, KV_BYTES)),
    Row("16 requests on 1024 tokens", Clients("m500", ((PREFIX + 16, 32),) * 16, 16, 16 * 1280, shared=PREFIX), SERVED),
    Row("the pair, 16 sequences", Pair("m500", 16, 128, 128), PAIR),
    Row("GQA 8: decode 1", Batch("gqa8", 1, 128, 64), (DECODE, BANDWIDTH), ALL_WIDTHS),
    Row("GQA 8: decode 16", Batch("gqa8", 16, 128, 32), (DECODE,), ALL_WIDTHS),
    Row("GQA 8: prefill 512", Batch("gqa8", 1, 512, 3), (PREFILL, OPERATIONS), ALL_WIDTHS),
    Row("GQA 8: decode 64", Batch("gqa8", 64, 128, 16), (DECODE,)),
    Row("GQA 8: prefill 2048", Batch("gqa8", 1, 2048, 3), (PREFILL,)),
    Row("GQA 8: 4096 tokens", Batch("gqa8", 1, 4096, 16), (PREFILL, DECODE)),
    Row("GQA 8: mix, 16 clients", Clients("gqa8", tuple(chat_requests(32)), 16, 16384), SERVED),
    Row("small model: a third of the pool, 16 clients",
        Clients("s15m", ((256, 256),) * 48, 16, 16 * 512 // 3 // 256 * 256, fills_pool=True),
        SERVED),
    Row("small model: mix, 32 clients", Clients("s15m", tuple(chat_requests(192)), 32, 32 * 1024), SERVED),
    Row("small model: the pair, 16 sequences", Pair("s15m", 16, 128, 256), PAIR),
    Row("small model: the pair, one stream", Pair("s15m", 16, 128, 256, one_stream=True), PAIR),
)
