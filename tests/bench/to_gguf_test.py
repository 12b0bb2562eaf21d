#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a GGUF file has the tensors of the make_model checkpoint: to_gguf_test.py MAKE_MODEL."""

import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

from to_gguf import Checkpoint, convert, gguf_name

MAKE_MODEL = sys.argv.pop()


class ToGgufTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model = pathlib.Path(self.folder.name, "model")
        subprocess.run([MAKE_MODEL, f"--output={self.model}", "--layers=1", "--vocab=258"], check=True,
                       stdout=subprocess.DEVNULL)
        self.gguf = pathlib.Path(self.folder.name, "model.gguf")
        convert(self.model, self.gguf)
        self.checkpoint = Checkpoint(self.model)

    def tearDown(self):
        self.checkpoint.bytes.close()
        self.folder.cleanup()

    def tensor(self, name):
        """Returns the tensor's bytes in the GGUF file, found by the offset and the type behind its name."""
        content = self.gguf.read_bytes()
        infos = content.index(b"token_embd.weight")
        at = content.index(struct.pack("<Q", len(name)) + name.encode(), infos - 8) + 8 + len(name)
        dimensions = struct.unpack_from("<I", content, at)[0]
        shape = struct.unpack_from(f"<{dimensions}Q", content, at + 4)
        kind, offset = struct.unpack_from("<IQ", content, at + 4 + 8 * dimensions)
        name = struct.pack("<Q", 13) + b"output.weight"  # The last tensor.
        data_start = (content.index(name) + len(name) + 4 + 2 * 8 + 12 + 31) // 32 * 32
        size = (4 if kind == 0 else 2) * shape[0] * (shape[1] if dimensions == 2 else 1)
        return content[data_start + offset:data_start + offset + size]

    def source(self, name):
        begin, end = self.checkpoint.header[name]["data_offsets"]
        return self.checkpoint.bytes[self.checkpoint.start + begin:self.checkpoint.start + end]

    def test_names_follow_llama_cpp(self):
        self.assertEqual(gguf_name("model.layers.3.mlp.up_proj.weight"), "blk.3.ffn_up.weight")
        self.assertEqual(gguf_name("lm_head.weight"), "output.weight")

    def test_matrices_are_copied(self):
        self.assertEqual(self.tensor("token_embd.weight"), self.source("model.embed_tokens.weight"))
        self.assertEqual(self.tensor("output.weight"), self.source("lm_head.weight"))

    def test_norms_are_float32(self):
        source = self.source("model.layers.0.input_layernorm.weight")
        self.assertEqual(self.tensor("blk.0.attn_norm.weight"),
                         b"".join(b"\0\0" + source[i:i + 2] for i in range(0, len(source), 2)))

    def test_rows_of_a_rotated_pair_are_neighbours(self):
        row = 2 * 64  # This is in bytes; a head has 16 rows.
        source, target = (self.source("model.layers.0.self_attn.q_proj.weight"), self.tensor("blk.0.attn_q.weight"))
        rows = [source[i * row:(i + 1) * row] for i in range(64)]
        self.assertEqual(target[:3 * row], rows[0] + rows[8] + rows[1])
        self.assertEqual(target[16 * row:18 * row], rows[16] + rows[24])


if __name__ == "__main__":
    unittest.main()
