# SPDX-License-Identifier: Apache-2.0
"""Compares the module with dense attention in float64, and tests every error message. Uses PyTorch, ml_dtypes and a GPU
if they are present."""

import gc
import importlib.util
import sys
import threading
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: there is no NumPy")
    sys.exit(77)

from paged_attention import _kernels, forward

torch = None
if importlib.util.find_spec("torch"):
    import torch

# Tolerances are relative to the largest value. With float32 the sums are float32. The other types round the result, and
# bfloat16 may also round queries and weights.
TOLERANCE = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2}


def to_bfloat16_words(values):
    """Rounds to the nearest value, ties to even. The input has no NaN."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16_words(words):
    return (words.astype(np.uint32) << 16).view(np.float32)


class Case:
    """A step with random numbers, over a cache with randomly assigned blocks. Unused elements are NaN."""

    def __init__(self, lens, heads=4, kv_heads=2, dim=64, block=16, dtype="float32", seed=1, placement=1):
        numbers = np.random.default_rng(seed)
        self.block, self.dtype, self.lens = block, dtype, np.array(lens, np.int32)
        counts = [-(-n // block) for n in lens]
        blocks = iter(np.random.default_rng(placement).permutation(sum(counts)))
        self.tables = np.full((len(lens), max(counts, default=0)), -1000, np.int32)
        self.key = np.full((sum(counts), block, kv_heads, dim), np.nan, np.float32)
        self.value = self.key.copy()
        self.query = self.rounded(numbers.standard_normal((len(lens), heads, dim)))
        for s, n in enumerate(lens):
            self.tables[s, : counts[s]] = [next(blocks) for _ in range(counts[s])]
            for cache in (self.key, self.value):
                tokens = self.rounded(numbers.standard_normal((n, kv_heads, dim)))
                for t in range(n):
                    cache[self.tables[s, t // block], t % block] = tokens[t]

    def rounded(self, values):
        if self.dtype == "bfloat16":
            return from_bfloat16_words(to_bfloat16_words(values))
        return values.astype(self.dtype).astype(np.float32)

    def expected(self, scale=None):
        _, heads, dim = self.query.shape
        group = heads // self.key.shape[2]
        out = np.zeros(self.query.shape)
        for s, n in enumerate(self.lens):
            slots = [(self.tables[s, t // self.block], t % self.block) for t in range(n)]
            for h in range(heads if n else 0):
                k = np.array([self.key[slot][h // group] for slot in slots], np.float64)
                v = np.array([self.value[slot][h // group] for slot in slots], np.float64)
                scores = k @ self.query[s, h].astype(np.float64) * (scale or dim**-0.5)
                weights = np.exp(scores - scores.max())
                out[s, h] = weights @ v / weights.sum()
        return out

    def run(self, **options):
        """The result as float32."""
        longest = max(1, int(self.lens.max(initial=1)))
        if self.dtype != "bfloat16":
            arrays = [a.astype(self.dtype) for a in (self.query, self.key, self.value)]
            return forward(*arrays, self.tables, self.lens, self.block, longest, **options).astype(np.float32)
        # NumPy has no bfloat16, so the arrays hold its 16-bit words.
        with np.errstate(invalid="ignore"):
            words = [to_bfloat16_words(a) for a in (self.query, self.key, self.value)]
        out = np.empty_like(words[0])
        pairs = [(a, True) for a in (out, *words)] + [(self.tables, False), (self.lens, False)]
        _kernels.forward(*pairs, self.block, longest, options.get("scale"), 0)
        return from_bfloat16_words(out)

    def arguments(self):
        return {
            "query": self.query,
            "key_cache": self.key,
            "value_cache": self.value,
            "block_tables": self.tables,
            "context_lens": self.lens,
            "block_size": self.block,
            "max_context_len": int(self.lens.max(initial=1)),
        }


class OtherLibrary:
    """An array of a library that supports only DLPack before 1.0, without max_version."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class PagedAttentionTest(unittest.TestCase):
    def assert_close(self, actual, expected, dtype):
        self.assertEqual(actual.shape, expected.shape)
        if expected.size:
            self.assertLess(abs(actual - expected).max(), TOLERANCE[dtype] * max(abs(expected).max(), 1e-30))

    def check(self, *args, **options):
        case = Case(*args, **options)
        with self.subTest(args=args, **options):
            self.assert_close(case.run(), case.expected(), case.dtype)

    def test_heads_blocks_and_types(self):
        for dtype in TOLERANCE:
            for dim in (2, 64, 80, 96, 128, 256):
                for block in (1, 8, 16, 32):
                    self.check([1, 37, 0, 70], dim=dim, block=block, dtype=dtype)

    def test_query_heads_share_kv_heads(self):
        for dtype in TOLERANCE:
            for heads, kv_heads in ((4, 4), (8, 2), (6, 1), (40, 1), (32, 8)):
                self.check([33, 5], heads, kv_heads, dtype=dtype)

    def test_short_and_long_contexts(self):
        for dtype in TOLERANCE:
            self.check([0, 1, 3000], dtype=dtype)
            self.check([0, 0], dtype=dtype)
            self.check([], dtype=dtype)

    def test_bits_do_not_depend_on_places_block_sizes_or_other_sequences(self):
        for dtype in TOLERANCE:
            expected = Case([70, 0, 600, 1], dtype=dtype).run()
            for block in (1, 8, 16, 32):
                other = Case([70, 0, 600, 1], dtype=dtype, block=block, placement=7).run()
                np.testing.assert_array_equal(other, expected)
            alone = Case([70, 0, 600, 1], dtype=dtype)
            alone.lens[:2] = alone.lens[3] = 0
            np.testing.assert_array_equal(alone.run()[2], expected[2])

    def test_sequences_may_share_blocks(self):
        case = Case([100, 100, 40])
        case.tables[1, :3] = case.tables[2, :3] = case.tables[0, :3]
        self.assert_close(case.run(), case.expected(), "float32")

    def test_scale(self):
        case = Case([20, 300])
        self.assert_close(case.run(scale=0.5), case.expected(0.5), "float32")
        np.testing.assert_array_equal(case.run(scale=None), case.run(scale=0.125))

    def test_arrays_may_have_gaps_and_permuted_dimensions(self):
        case = Case([40, 17])
        expected = case.run()
        longest = int(case.lens.max())
        query = np.repeat(case.query, 2, axis=1)[:, ::2]
        heads_first = np.ascontiguousarray(case.key.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
        values = np.repeat(case.value, 3, axis=0)[::3][::-1][::-1]
        tables = np.hstack([case.tables, case.tables])[:, : case.tables.shape[1]]
        out = forward(query, heads_first, values, tables, case.lens, case.block, longest)
        np.testing.assert_array_equal(out, expected)
        self.assertTrue(out.flags.c_contiguous and out.flags.writeable)
        backwards = np.ascontiguousarray(case.query[::-1])[::-1]
        np.testing.assert_array_equal(
            forward(backwards, case.key, case.value, case.tables, case.lens, case.block, longest), expected)

    def test_result_is_a_new_array_of_the_kind_of_the_query(self):
        for dtype in ("float32", "float16"):
            case = Case([5, 6], dtype=dtype)
            arrays = [a.astype(dtype) for a in (case.query, case.key, case.value)]
            before = [a.copy() for a in arrays]
            out = forward(*arrays, case.tables, case.lens, case.block, 6)
            self.assertIs(type(out), np.ndarray)
            self.assertEqual((out.dtype, out.shape), (arrays[0].dtype, arrays[0].shape))
            for array, copy in zip(arrays, before):
                np.testing.assert_array_equal(array, copy)

    def test_read_only_arrays_are_read_or_refused_by_their_library(self):
        case = Case([5])
        case.query.flags.writeable = False
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
            self.assert_close(case.run(), case.expected(), "float32")
        else:
            with self.assertRaisesRegex(ValueError, "query cannot be exported through DLPack: .*readonly"):
                forward(**case.arguments())

    def test_arrays_of_other_libraries_come_and_go_through_dlpack(self):
        case = Case([70, 0, 9])
        arguments = case.arguments()
        names = ("query", "key_cache", "value_cache", "block_tables", "context_lens")
        arguments.update({name: OtherLibrary(arguments[name]) for name in names})
        out = forward(**arguments)
        self.assertEqual(out.__dlpack_device__(), (1, 0))
        view = np.from_dlpack(out)
        for version in (None, (0, 8), (1, 0), (2, 0)):
            capsule = out.__dlpack__(max_version=version, stream=None, dl_device=(1, 0), copy=False)
            self.assertIn("dltensor_versioned" if version and version[0] else 'dltensor"', repr(capsule))
            del capsule  # The capsule has not been consumed.
        with self.assertRaises(BufferError):
            out.__dlpack__(copy=True)
        with self.assertRaisesRegex(BufferError, r"is on device \(1, 0\) and does not move to \(2, 0\)"):
            out.__dlpack__(dl_device=(2, 0))
        with self.assertRaises(TypeError):
            type(out)()
        del out
        gc.collect()
        np.testing.assert_array_equal(view, case.run())  # The view keeps the memory alive.

    def test_nothing_stays_borrowed(self):
        case = Case([5])
        arguments = case.arguments()
        arrays = [a for a in arguments.values() if isinstance(a, np.ndarray)]
        before = [sys.getrefcount(a) for a in arrays]
        for _ in range(50):
            forward(**arguments)
            for wrong in ({"block_size": 3}, {"context_lens": arguments["context_lens"] + 99}, {"scale": "x"}):
                with self.assertRaises((TypeError, ValueError)):
                    forward(**{**arguments, **wrong})
        self.assertEqual([sys.getrefcount(a) for a in arrays], before)

    def test_threads_may_call_at_once(self):
        case = Case([600, 70])
        expected, results = case.run(), [None] * 4

        def work(i):
            results[i] = case.run()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            np.testing.assert_array_equal(result, expected)


class MessagesTest(unittest.TestCase):
    def check(self, error, message, **changes):
        """`changes` are wrong arguments, or functions that make them from the correct arguments."""
        right = Case([30, 40]).arguments()
        wrong = {name: change(right[name]) if callable(change) else change for name, change in changes.items()}
        with self.subTest(message=message), self.assertRaises(error) as caught:
            forward(**{**right, **wrong})
        self.assertIs(type(caught.exception), error)
        self.assertIn(message, str(caught.exception))

    def test_shapes(self):
        self.check(ValueError, "query has shape [2, 256], must have 3 dimensions [num_seqs, num_heads, head_dim]",
                   query=lambda q: q.reshape(2, -1))
        self.check(ValueError, "key_cache has shape [5, 16, 128], must have 4 dimensions",
                   key_cache=lambda k: k.reshape(5, 16, -1))
        self.check(ValueError, "value_cache has shape [5, 16, 128], must have 4 dimensions",
                   value_cache=lambda v: v.reshape(5, 16, -1))
        self.check(ValueError, "block_tables has shape [6], must have 2", block_tables=lambda t: t.reshape(-1))
        self.check(ValueError, "context_lens has shape [2, 1], must have 1", context_lens=lambda n: n.reshape(2, 1))
        self.check(ValueError, "key_cache has shape [5, 16, 2, 32] [num_blocks, block_size, num_kv_heads, head_dim], "
                   "its dimension 3 must be 64 like query's head_dim",
                   key_cache=lambda k: np.ascontiguousarray(k[..., :32]))
        self.check(ValueError, "value_cache has shape [4, 16, 2, 64]", value_cache=lambda v: v[:4])
        self.check(ValueError, "its dimension 2 must be 2 like key_cache's", value_cache=lambda v: v[:, :, :1])
        self.check(ValueError, "its dimension 0 must be 2 like query's num_seqs", block_tables=lambda t: t[:1])
        self.check(ValueError, "context_lens has shape [1] [num_seqs], its dimension 0 must be 2 like query's num_seqs",
                   context_lens=lambda n: n[:1])
        self.check(ValueError, "num_heads is 3, must be a multiple of num_kv_heads 2", query=lambda q: q[:, :3].copy())
        self.check(ValueError, "num_heads is 0, must be in [1, 2147483647]", query=lambda q: q[:, :0])
        for dim in (63, 258):
            self.check(ValueError, f"head_dim is {dim}, must be even and at most 256",
                       query=np.zeros((2, 4, dim), np.float32), key_cache=np.zeros((5, 16, 2, dim), np.float32),
                       value_cache=np.zeros((5, 16, 2, dim), np.float32))

    def test_strides(self):
        doubled = lambda a: np.repeat(a, 2, axis=-1)[..., ::2]
        for name in ("query", "key_cache", "value_cache", "block_tables", "context_lens"):
            self.check(ValueError, f"{name} has stride 2 in its last dimension, must be 1", **{name: doubled})

    def test_types(self):
        self.check(TypeError, "query is float64, must be float32, bfloat16 or float16",
                   query=lambda q: q.astype(np.float64))
        self.check(TypeError, "query is int8, must be float32", query=lambda q: np.zeros(q.shape, np.int8))
        self.check(TypeError, "key_cache is float16, must be float32 like query",
                   key_cache=lambda k: k.astype(np.float16))
        self.check(TypeError, "value_cache is float16, must be float32 like query",
                   value_cache=lambda v: v.astype(np.float16))
        self.check(TypeError, "block_tables is int64, must be int32", block_tables=lambda t: t.astype(np.int64))
        self.check(TypeError, "context_lens is uint32, must be int32", context_lens=lambda n: n.astype(np.uint32))
        self.check(TypeError, "query is a list, must be an array that has __dlpack__", query=[[1.0]])
        self.check(TypeError, "context_lens is a NoneType, must be an array", context_lens=None)

    def test_numbers(self):
        self.check(TypeError, "block_size is '16', must be an int", block_size="16")
        self.check(TypeError, "max_context_len is 1.5, must be an int", max_context_len=1.5)
        self.check(ValueError, "block_size is 8, must be 16, dimension 1 of key_cache", block_size=8)
        self.check(ValueError, "block_size is 0, must be 16", block_size=0)
        self.check(ValueError, "block_size is -16, must be 16", block_size=-16)
        self.check(ValueError, f"block_size is {10**30}, must be at most 2147483647", block_size=10**30)
        self.check(ValueError, "block_size is 20, must be 1, 2, 4, 8 or a multiple of 16", block_size=20,
                   key_cache=np.zeros((5, 20, 2, 64), np.float32), value_cache=np.zeros((5, 20, 2, 64), np.float32))
        for wrong in (0, -5, 2**31):
            self.check(ValueError, f"max_context_len is {wrong}, must be in [1, 2147483647]", max_context_len=wrong)
        self.check(TypeError, "scale is '1', must be a number or None", scale="1")
        for wrong in ("nan", "inf"):
            self.check(ValueError, f"scale is {wrong}, must be finite", scale=float(wrong))

    def test_entries(self):
        def with_entry(index, value):
            def change(array):
                array[index] = value
                return array

            return change

        for block in (-1, 5, 2**31 - 1):
            self.check(ValueError, f"block_tables[1, 2] is {block}, must be in [0, 5), the blocks of key_cache",
                       block_tables=with_entry((1, 2), block))
        self.check(ValueError, "context_lens[1] is 40, above max_context_len 39", max_context_len=39)
        self.check(ValueError, "context_lens[0] is -1, must be at least 0", context_lens=with_entry(0, -1))
        self.check(ValueError, "context_lens[1] is 49, above the 48 tokens that block_tables has room for (3 blocks of "
                   "16)", context_lens=with_entry(1, 49), max_context_len=100)

    def test_arrays_that_do_not_keep_the_protocol(self):
        class Broken(OtherLibrary):
            device, capsule = (1, 0), None

            def __dlpack__(self, **_):
                return self.capsule

            def __dlpack_device__(self):
                return self.device

        case = Case([30, 40])
        broken = Broken(None)
        self.check(TypeError, "key_cache.__dlpack__() did not return a new DLPack capsule", key_cache=broken)
        broken.capsule = case.key.__dlpack__()
        forward(**{**case.arguments(), "key_cache": broken})
        self.check(TypeError, "key_cache.__dlpack__() did not return a new DLPack capsule", key_cache=broken)


@unittest.skipUnless(torch, "there is no PyTorch")
class TorchTest(unittest.TestCase):
    def dense(self, case, tensors):
        """Dense attention of PyTorch, sequence by sequence."""
        query, key, value = (t.double() for t in tensors)
        group = query.shape[1] // key.shape[2]
        out = torch.zeros_like(query)
        for s, n in enumerate(case.lens.tolist()):
            if n == 0:
                continue
            table = torch.from_numpy(case.tables[s, : -(-n // case.block)]).long().to(query.device)
            k, v = (c[table].flatten(0, 1)[:n].repeat_interleave(group, 1).transpose(0, 1) for c in (key, value))
            out[s] = torch.nn.functional.scaled_dot_product_attention(query[s, :, None], k, v)[:, 0]
        return out

    def check(self, device, dtype, **options):
        case = Case([70, 0, 1, 600], dtype=dtype, **options)
        with self.subTest(device=device, dtype=dtype, **options):
            arrays = (case.query, case.key, case.value)
            tensors = [torch.from_numpy(a).to(device, getattr(torch, dtype)) for a in arrays]
            tables, lens = torch.from_numpy(case.tables).to(device), torch.from_numpy(case.lens).to(device)
            out = forward(*tensors, tables, lens, case.block, 600)
            self.assertIs(type(out), torch.Tensor)
            like = tensors[0]
            self.assertEqual((out.dtype, out.device, out.shape), (like.dtype, like.device, like.shape))
            expected = self.dense(case, tensors)
            error = (out.double() - expected).abs().max() / expected.abs().max()
            self.assertLess(error.item(), TOLERANCE[dtype])

    def test_dense_attention_on_the_cpu(self):
        for dtype in TOLERANCE:
            for dim in (64, 80, 96, 128, 256):
                for block in (1, 8, 16, 32):
                    self.check("cpu", dtype, dim=dim, block=block)
            self.check("cpu", dtype, heads=8, kv_heads=1)

    @unittest.skipUnless(torch and torch.cuda.is_available(), "there is no GPU")
    def test_dense_attention_on_a_gpu(self):
        for dtype in ("bfloat16", "float16"):
            for dim in (64, 80, 96, 128, 256):
                for block in (1, 8, 16, 32):
                    self.check("cuda", dtype, dim=dim, block=block)
            self.check("cuda", dtype, heads=40, kv_heads=1)

    def test_tensors_with_gradients_are_read(self):
        case = Case([5, 6])
        arguments = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in case.arguments().items()}
        arguments["query"].requires_grad = True
        out = forward(**arguments)
        self.assertFalse(out.requires_grad)
        np.testing.assert_array_equal(out.numpy(), case.run())

    @unittest.skipUnless(torch and torch.cuda.is_available(), "there is no GPU")
    def test_all_arrays_are_on_one_device(self):
        case = Case([5, 6], dtype="float16")
        arguments = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in case.arguments().items()}
        with self.assertRaisesRegex(ValueError, "key_cache is on GPU 0, must be on the CPU like query"):
            forward(**{**arguments, "key_cache": arguments["key_cache"].cuda()})


@unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "there is no ml_dtypes")
class MlDtypesTest(unittest.TestCase):
    def test_bfloat16_of_numpy(self):
        import ml_dtypes

        case = Case([70, 0, 9], dtype="bfloat16")
        arrays = [a.astype(ml_dtypes.bfloat16) for a in (case.query, case.key, case.value)]
        out = forward(*arrays, case.tables, case.lens, case.block, 70)
        self.assertEqual(out.dtype, ml_dtypes.bfloat16)
        np.testing.assert_array_equal(out.astype(np.float32), case.run())


if __name__ == "__main__":
    unittest.main()
