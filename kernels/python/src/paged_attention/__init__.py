# SPDX-License-Identifier: Apache-2.0
"""Attention over a paged K/V cache: one decode step, on the CPU or a GPU."""

from paged_attention import _kernels

__all__ = ["forward"]


def forward(query, key_cache, value_cache, block_tables, context_lens, block_size, max_context_len, *, scale=None):
    """Returns softmax(scale * query K^T) V for the last token of every sequence.

    query         [num_seqs, num_heads, head_dim] float32 (only on the CPU), bfloat16 or float16
    key_cache     [num_blocks, block_size, num_kv_heads, head_dim] of the same type
    value_cache   like key_cache
    block_tables  [num_seqs, max_blocks] int32: token t is in block block_tables[s, t // block_size]
    context_lens  [num_seqs] int32, at most max_context_len each; 0 gives zeros
    scale         1 / sqrt(head_dim) if None

    The arrays may be any objects with __dlpack__ (NumPy, PyTorch, CuPy, ...). All of them must be on one device, and
    their last dimension must be contiguous. Query head h reads KV head h * num_kv_heads // num_heads. The result is a
    new array with the shape, type and library of query. If the library is none of these three, the result is an object
    with __dlpack__. The result has no gradient. On a GPU the work runs in the library's current stream, and it is
    complete when the function returns.

    Raises TypeError if an argument has a wrong type, and ValueError if it has a wrong shape or value. The message names
    the argument, its value and the limit.
    """
    inputs = {
        "query": query,
        "key_cache": key_cache,
        "value_cache": value_cache,
        "block_tables": block_tables,
        "context_lens": context_lens,
    }
    for name, array in inputs.items():
        if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
            raise TypeError(f"{name} is a {type(array).__name__}, must be an array that has __dlpack__")
    out, stream = _new_output(query)
    arrays = [_exported(array) for array in (out, *inputs.values())]
    _kernels.forward(*arrays, block_size, max_context_len, scale, stream)
    return out


def _new_output(query):
    """Returns a contiguous array like `query`, and the CUDA stream of its library (0: the default stream)."""
    library = type(query).__module__.partition(".")[0]
    if library == "torch":
        import torch

        out = torch.empty_like(query, requires_grad=False, memory_format=torch.contiguous_format)
        return out, torch.cuda.current_stream(query.device).cuda_stream if query.is_cuda else 0
    if library == "numpy":
        import numpy

        return numpy.empty(query.shape, query.dtype), 0
    if library == "cupy":
        import cupy

        return cupy.empty(query.shape, query.dtype), cupy.cuda.get_current_stream().ptr
    return _kernels.empty_like(query), 0


def _exported(array):
    """Returns `array` in a form that its library can export, and whether its 16-bit words are bfloat16."""
    if getattr(array, "requires_grad", False):
        return array.detach(), False
    if type(array).__module__ == "numpy" and array.dtype.name == "bfloat16":  # The package ml_dtypes defines this type.
        return array.view("uint16"), True
    return array, False
