# SPDX-License-Identifier: Apache-2.0
"""Attention of decodes over paged K and V in Triton: a baseline for gpu_attention.py.

One program computes one split of one sequence for one KV head and the group of query heads that shares it. A second
kernel joins the splits.
"""

import triton
import triton.language as tl

TILE_TOKENS = 64
LEAST_ROWS = 16  # Smallest number of rows for tl.dot.


@triton.jit
def _attend(q, k, v, tables, lengths, states, values, scale_log2, table_size, HEADS: tl.constexpr,
            KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr,
            TILE: tl.constexpr):
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group: tl.constexpr = HEADS // KV_HEADS
    length = tl.load(lengths + sequence)
    split_tokens = tl.cdiv(tl.cdiv(length, SPLITS), TILE) * TILE
    begin = split * split_tokens
    end = tl.minimum(begin + split_tokens, length)
    rows, dims = tl.arange(0, ROWS), tl.arange(0, DIM)
    is_row = rows < group
    heads = sequence * HEADS + kv_head * group + rows
    queries = tl.load(q + heads[:, None] * DIM + dims[None, :], mask=is_row[:, None], other=0.0)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, DIM], tl.float32)
    for first in range(begin, end, TILE):
        tokens = first + tl.arange(0, TILE)
        is_token = tokens < end
        blocks = tl.load(tables + sequence * table_size + tokens // BLOCK, mask=is_token, other=0).to(tl.int64)
        slots = (blocks * BLOCK + tokens % BLOCK) * KV_HEADS + kv_head
        keys = tl.load(k + slots[None, :] * DIM + dims[:, None], mask=is_token[None, :], other=0.0)
        scores = tl.where(is_token[None, :], tl.dot(queries, keys) * scale_log2, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - new_largest[:, None])
        factor = tl.exp2(largest - new_largest)
        loaded = tl.load(v + slots[:, None] * DIM + dims[None, :], mask=is_token[:, None], other=0.0)
        sums = sums * factor[:, None] + tl.dot(weights.to(loaded.dtype), loaded)
        total = total * factor + tl.sum(weights, 1)
        largest = new_largest
    places = heads * SPLITS + split
    tl.store(states + 2 * places, largest, mask=is_row)
    tl.store(states + 2 * places + 1, total, mask=is_row)
    tl.store(values + places[:, None] * DIM + dims[None, :], sums, mask=is_row[:, None])


@triton.jit
def _join(states, values, out, DIM: tl.constexpr, SPLITS: tl.constexpr):
    head = tl.program_id(0)
    splits, dims = tl.arange(0, SPLITS), tl.arange(0, DIM)
    places = head * SPLITS + splits
    largest = tl.load(states + 2 * places)
    weights = tl.exp2(largest - tl.max(largest, 0))
    total = tl.sum(tl.load(states + 2 * places + 1) * weights, 0)
    sums = tl.sum(tl.load(values + places[:, None] * DIM + dims[None, :]) * weights[:, None], 0)
    tl.store(out + head * DIM + dims, (sums / total).to(out.dtype.element_ty))


def num_splits(sequences, kv_heads, longest, multiprocessors):
    """Returns a power of two: enough splits for two programs on every multiprocessor, but none without a tile."""
    splits = 1
    while sequences * kv_heads * splits < 2 * multiprocessors and 2 * splits * TILE_TOKENS <= longest:
        splits *= 2
    return splits


def decode(q, k, v, tables, lengths, states, values, out, scale, splits):
    """Writes out [sequences, heads, dim] = softmax(q k^T * scale) v.

    q is like out. k and v are [blocks, tokens of a block, kv_heads, dim], tables is [sequences, blocks of the longest]
    and lengths [sequences], all at least 1. states [sequences, heads, splits, 2] and values [sequences, heads, splits,
    dim] are float32 and hold the results of the splits.
    """
    sequences, heads, dim = q.shape
    block, kv_heads = k.shape[1], k.shape[2]
    _attend[(sequences, kv_heads, splits)](
        q, k, v, tables, lengths, states, values, scale * 1.4426950408889634, tables.shape[1], HEADS=heads,
        KV_HEADS=kv_heads, DIM=dim, BLOCK=block, SPLITS=splits, ROWS=max(LEAST_ROWS, heads // kv_heads),
        TILE=TILE_TOKENS)
    _join[(sequences * heads,)](states, values, out, DIM=dim, SPLITS=splits)
