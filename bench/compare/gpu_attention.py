#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures other attention on this GPU with the shapes of gpu_speed, beside the results of gpu_speed.

    gpu_attention.py --quire=gpu_speed.json [--json=FILE]

The times are medians of several runs. They are measured on the device, by events around a CUDA graph of several calls,
with K and V that are not in the device's caches.

- SDPA is PyTorch's scaled_dot_product_attention with the backend that PyTorch chooses, and flex_attention is compiled
  to Triton. They read contiguous K and V of each sequence.
- Triton is the kernel of triton_decode.py, for decodes. FlashInfer is its paged attention for decodes, and its
  attention over contiguous K and V for prompts. Like Quire, they read blocks of 16 tokens in random places when they
  decode.

What is not installed is skipped by name.
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F

try:
    import triton_decode
except ImportError:
    triton_decode = None
try:
    import flashinfer
except ImportError:
    flashinfer = None

RUNS = 11
RUN_SECONDS = 4e-3
BLOCK_TOKENS = 16
HEADS = "32/8 heads of 128, blocks of 16"
# Each row has the name in gpu_speed, sequences, query heads, KV heads, head_dim, cached tokens and new tokens.
CASES = [
    (f"64 at 4096, {HEADS}", 64, 32, 8, 128, 4095, 1),
    (f"64 at 1024, {HEADS}", 64, 32, 8, 128, 1023, 1),
    (f"16 at 8192, {HEADS}", 16, 32, 8, 128, 8191, 1),
    (f"1 at 4096, {HEADS}", 1, 32, 8, 128, 4095, 1),
    ("64 at 4096, 64/8 heads of 128, blocks of 16", 64, 64, 8, 128, 4095, 1),
    ("64 at 1024, 32/32 heads of 128, blocks of 16", 64, 32, 32, 128, 1023, 1),
    ("64 at 4096, 32/8 heads of 64, blocks of 16", 64, 32, 8, 64, 4095, 1),
    (f"8192 after 0, {HEADS}", 1, 32, 8, 128, 0, 8192),
    (f"1024 after 0, {HEADS}", 1, 32, 8, 128, 0, 1024),
    (f"2048 after 6144, {HEADS}", 1, 32, 8, 128, 6144, 2048),
    ("8192 after 0, 32/8 heads of 64, blocks of 16", 1, 32, 8, 64, 0, 8192),
]
# flex_attention compiles for about 20 s per shape.
COMPILED = [f"64 at 4096, {HEADS}", f"8192 after 0, {HEADS}"]


class Inputs:
    """Several copies of q [sequences, heads, new, dim] and k, v [sequences, kv_heads, tokens, dim]."""

    def __init__(self, case, l2_bytes):
        _, self.sequences, self.heads, self.kv_heads, self.dim, self.cached, self.new = case
        self.tokens = self.cached + self.new
        self.random = torch.Generator("cuda").manual_seed(1)
        kv_bytes = 4 * self.sequences * self.kv_heads * self.tokens * self.dim
        self.q = self.normal(self.heads, self.new)
        self.kv = [
            (self.normal(self.kv_heads, self.tokens), self.normal(self.kv_heads, self.tokens))
            for _ in range(4 * l2_bytes // kv_bytes + 1)
        ]

    def normal(self, num_heads, tokens):
        shape = (self.sequences, num_heads, tokens, self.dim)
        return torch.randn(shape, generator=self.random, device="cuda", dtype=torch.bfloat16)

    def paged(self):
        """Returns block tables [sequences, blocks] and the copies of K and V as [blocks, 2, 16, kv_heads, dim]."""
        blocks = -(-self.tokens // BLOCK_TOKENS)
        order = torch.randperm(self.sequences * blocks, generator=self.random, device="cuda")
        pools = []
        for k, v in self.kv:
            padded = F.pad(torch.stack((k, v), 1), (0, 0, 0, blocks * BLOCK_TOKENS - self.tokens))
            padded = padded.view(self.sequences, 2, self.kv_heads, blocks, BLOCK_TOKENS, self.dim)
            pool = torch.empty(self.sequences * blocks, 2, BLOCK_TOKENS, self.kv_heads, self.dim, device="cuda",
                               dtype=torch.bfloat16)
            pool[order] = padded.permute(0, 3, 1, 4, 2, 5).reshape(pool.shape)
            pools.append(pool)
        return order.view(self.sequences, blocks).to(torch.int32), pools


# Each function below returns calls that compute the attention of one copy each. The result of a call is a tensor whose
# last query of the first sequence is at [0, :, -1].


def sdpa(inputs):
    """A lower right causal mask is used only for several queries after cached tokens."""
    how = {"is_causal": inputs.new > 1}
    if inputs.cached > 0 and inputs.new > 1:
        from torch.nn.attention.bias import causal_lower_right

        how = {"attn_mask": causal_lower_right(inputs.new, inputs.tokens)}
    return [
        lambda k=k, v=v: F.scaled_dot_product_attention(inputs.q, k, v, enable_gqa=True, **how) for k, v in inputs.kv
    ]


def flex(inputs):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    mask = None
    if inputs.new > 1:
        mask = create_block_mask(lambda b, h, q, kv: q + inputs.cached >= kv, None, None, inputs.new, inputs.tokens,
                                 device="cuda")
    return [lambda k=k, v=v: compiled(inputs.q, k, v, block_mask=mask, enable_gqa=True) for k, v in inputs.kv]


def triton_paged(inputs):
    tables, pools = inputs.paged()
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    splits = triton_decode.num_splits(inputs.sequences, inputs.kv_heads, inputs.tokens, multiprocessors)
    lengths = torch.full((inputs.sequences,), inputs.tokens, dtype=torch.int32, device="cuda")
    states = torch.empty(inputs.sequences, inputs.heads, splits, 2, device="cuda")
    values = torch.empty(inputs.sequences, inputs.heads, splits, inputs.dim, device="cuda")
    q = inputs.q.view(inputs.sequences, inputs.heads, inputs.dim)
    out = torch.empty_like(q)

    def attend(k, v):
        triton_decode.decode(q, k, v, tables, lengths, states, values, out, inputs.dim**-0.5, splits)
        return out.unsqueeze(2)

    halves = [pool.unbind(1) for pool in pools]
    copies = [(k.contiguous(), v.contiguous()) for k, v in halves]
    return [lambda k=k, v=v: attend(k, v) for k, v in copies]


def flashinfer_paged(inputs):
    tables, pools = inputs.paged()
    blocks = tables.shape[1]
    starts = torch.arange(0, inputs.sequences * blocks + 1, blocks, dtype=torch.int32, device="cuda")
    last = torch.full((inputs.sequences,), inputs.tokens - (blocks - 1) * BLOCK_TOKENS, dtype=torch.int32,
                      device="cuda")
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
    wrapper.plan(starts, tables.flatten(), last, inputs.heads, inputs.kv_heads, inputs.dim, BLOCK_TOKENS,
                 q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
    q = inputs.q.view(inputs.sequences, inputs.heads, inputs.dim)
    return [lambda pool=pool: wrapper.run(q, pool).unsqueeze(2) for pool in pools]


def flashinfer_prompt(inputs):
    q = inputs.q[0].transpose(0, 1).contiguous()
    copies = [(k[0].transpose(0, 1).contiguous(), v[0].transpose(0, 1).contiguous()) for k, v in inputs.kv]
    return [
        lambda k=k, v=v: flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True).transpose(0, 1).unsqueeze(0)
        for k, v in copies
    ]


def baselines(case):
    """Returns the names and functions of what attends in this case."""
    is_decode = case[-1] == 1
    found = {"SDPA": sdpa}
    if case[0] in COMPILED:
        found["flex_attention"] = flex
    if triton_decode is not None and is_decode:
        found["Triton"] = triton_paged
    if flashinfer is not None:
        found["FlashInfer"] = flashinfer_paged if is_decode else flashinfer_prompt
    return found


def reference(q, k, v, cached):
    """Returns the attention of the first sequence's last query in float64."""
    group = q.shape[1] // k.shape[1]
    keys = k[0].double().repeat_interleave(group, 0)
    values = v[0].double().repeat_interleave(group, 0)
    scores = torch.einsum("hd,htd->ht", q[0, :, -1].double(), keys) / q.shape[-1] ** 0.5
    return torch.einsum("ht,htd->hd", scores.softmax(-1), values)


def seconds(work, busy):
    for _ in range(16):
        busy.zero_()  # This keeps the device busy until all work is queued.
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3


def measure(calls, busy):
    """Returns the median seconds of a call. The calls are made in turns."""

    def record(num_calls):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(num_calls):
                calls[i % len(calls)]()
        return graph

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # CUDA graphs in PyTorch need a stream of their own.
        for _ in range(3):
            calls[0]()
    torch.cuda.synchronize()
    first = record(4)
    seconds(first.replay, busy)
    estimate = seconds(first.replay, busy) / 4
    num_calls = max(1, min(200, int(RUN_SECONDS / estimate)))
    graph = record(num_calls)
    seconds(graph.replay, busy)
    return statistics.median(seconds(graph.replay, busy) / num_calls for _ in range(RUNS))


def run_case(case, busy, l2_bytes):
    inputs = Inputs(case, l2_bytes)
    expected = reference(inputs.q, *inputs.kv[0], inputs.cached)
    times = {}
    for name, make in baselines(case).items():
        try:
            calls = make(inputs)
            error = (calls[0]()[0, :, -1].double() - expected).abs().max() / expected.abs().max()
            if not error < 2e-2:
                print(f"  {name}: another result than float64, error {float(error):.3g}")
                continue
            times[name] = measure(calls, busy)
        except Exception as error:  # It does not support this version or shape. Report it and continue.
            print(f"  {name}: cannot run: {str(error).splitlines()[0][:150] if str(error) else type(error).__name__}")
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", required=True)
    parser.add_argument("--json")
    options = parser.parse_args()
    with open(options.quire) as file:
        ours = {row["name"]: row["median_us"] for row in json.load(file)["results"]}
    properties = torch.cuda.get_device_properties(0)
    l2_bytes = getattr(properties, "L2_cache_size", 64 << 20)
    print(f"{properties.name}, PyTorch {torch.__version__}; us, and how many times as long as Quire")
    for name, module in (("Triton", triton_decode), ("FlashInfer", flashinfer)):
        if module is None:
            print(f"{name} is not installed: skipped")
    busy = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    rows = []
    for case in CASES:
        name = case[0]
        times = run_case(case, busy, l2_bytes)
        quire = ours.get(name)
        row = {"name": name, "quire_us": quire, **{key: 1e6 * value for key, value in times.items()}}
        rows.append(row)
        figures = [f"Quire {quire:.1f}" if quire else "Quire: not measured"]
        for key, value in times.items():
            figures.append(f"{key} {1e6 * value:.1f}" + (f" ({1e6 * value / quire:.2f})" if quire else ""))
        print(f"{name}: " + ", ".join(figures), flush=True)
        torch.cuda.empty_cache()
        if options.json:  # With every row, so that a run that is stopped leaves its rows.
            with open(options.json, "w") as file:
                json.dump({"device": properties.name, "torch": torch.__version__, "results": rows}, file, indent=2)


if __name__ == "__main__":
    main()
