#!/usr/bin/env python3
"""Measures PyTorch's attention on this GPU with the shapes of gpu_speed, beside the results of gpu_speed.

    gpu_attention.py --quire=gpu_speed.json [--json=FILE]

PyTorch reads contiguous K and V of each sequence; Quire reads blocks of 16 tokens in random places. The times are
medians of several runs. They are measured on the device, by events around a CUDA graph of several calls, with K and V
that are not in the device's caches. SDPA is scaled_dot_product_attention with the backend that PyTorch chooses;
flex_attention is compiled to Triton.
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F

RUNS = 11
RUN_SECONDS = 4e-3
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


def sdpa(cached, new):
    """Returns softmax(q k^T) v. A lower right causal mask is used only for several queries after cached tokens."""
    if cached > 0 and new > 1:
        from torch.nn.attention.bias import causal_lower_right

        mask = causal_lower_right(new, cached + new)
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=new > 1, enable_gqa=True)


def flex(cached, new):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    mask = None
    if new > 1:
        mask = create_block_mask(lambda b, h, q, kv: q + cached >= kv, None, None, new, cached + new, device="cuda")
    return lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=True)


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


def measure(attend, inputs, busy):
    """Returns the median seconds of a call. The inputs are used in turns."""

    def record(num_calls):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(num_calls):
                attend(*inputs[i % len(inputs)])
        return graph

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # CUDA graphs in PyTorch need a stream of their own.
        for _ in range(3):
            attend(*inputs[0])
    torch.cuda.synchronize()
    first = record(4)
    seconds(first.replay, busy)
    estimate = seconds(first.replay, busy) / 4
    num_calls = max(1, min(200, int(RUN_SECONDS / estimate)))
    graph = record(num_calls)
    seconds(graph.replay, busy)
    return statistics.median(seconds(graph.replay, busy) / num_calls for _ in range(RUNS))


def run_case(case, busy, l2_bytes):
    _, sequences, heads, kv_heads, head_dim, cached, new = case
    random = torch.Generator("cuda").manual_seed(1)

    def normal(num_heads, tokens):
        shape = (sequences, num_heads, tokens, head_dim)
        return torch.randn(shape, generator=random, device="cuda", dtype=torch.bfloat16)

    kv_bytes = 4 * sequences * kv_heads * (cached + new) * head_dim
    q = normal(heads, new)
    inputs = [
        (q, normal(kv_heads, cached + new), normal(kv_heads, cached + new)) for _ in range(4 * l2_bytes // kv_bytes + 1)
    ]
    expected = reference(*inputs[0], cached)
    times = {}
    for name, make in (("SDPA", sdpa), ("flex_attention", flex)):
        if make is flex and case[0] not in COMPILED:
            continue
        try:
            attend = make(cached, new)
            error = (attend(*inputs[0])[0, :, -1].double() - expected).abs().max() / expected.abs().max()
            if not error < 2e-2:
                print(f"  {name}: another result than float64, error {float(error):.3g}")
                continue
            times[name] = measure(attend, inputs, busy)
        except Exception as error:  # PyTorch does not support this version or shape. Report it and continue.
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
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": properties.name, "torch": torch.__version__, "results": rows}, file, indent=2)


if __name__ == "__main__":
    main()
