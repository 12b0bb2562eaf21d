// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_BLOCK_GGUF_H_
#define QUIRE_TESTS_WORKER_MODEL_BLOCK_GGUF_H_

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/blocks.h"
#include "tests/worker/model/gguf_writer.h"
#include "worker/model/gguf_types.h"

namespace quire {

// A Llama, or with experts a Qwen 3 MoE, of random matrices in blocks of several types, in a GGUF file.
struct BlockGguf {
  int hidden = 256;
  int ffn = 512;
  int heads = 8;
  int kv_heads = 4;
  int head_dim = 32;
  int layers = 2;
  int vocab = 64;
  int experts = 0;  // 0: the layers have an MLP. The width of an expert is `ffn`.
  int top_k = 0;
  bool is_tied = false;
  std::string type = "Q4_K";
  std::map<std::string, std::string> other_types = {};  // By the part of the name, such as "attn_v" or "output".
  bool as_floats = false;                               // Whether the file has the same numbers in float32.

  // Returns the bytes of a matrix: all bits are random, except those of the scales, which keep the numbers small and
  // their mean at 0.
  static std::string RandomBlocks(const GgufTensorType& type, int64_t count, std::mt19937* random) {
    std::string bytes(static_cast<size_t>(count / type.block_elements * type.block_bytes), '\0');
    for (char& byte : bytes) byte = static_cast<char>((*random)());
    const BlockType block = *FindBlockType(type.name);
    const float largest = block == BlockType::kMXFP4                                 ? 1e-2f
                          : block == BlockType::kQ8_0 || block == BlockType::kIQ4_NL ? 1e-3f
                          : block == BlockType::kQ6_K                                ? 4e-5f
                                                                                     : 1e-4f;
    for (size_t at = 0; at < bytes.size(); at += type.block_bytes) {
      const float scale = static_cast<float>((*random)() % 100 + 1) * largest / 100;
      // The mean of the numbers without their minima.
      const float minimum = scale * (block == BlockType::kQ4_K ? 7.5f : 15.5f);
      SetBlockScale(block, scale, minimum, reinterpret_cast<uint8_t*>(&bytes[at]));
    }
    return bytes;
  }

  std::string File(uint32_t seed = 11) const {
    std::mt19937 random(seed);
    GgufWriter writer;
    const std::string architecture = experts > 0 ? "qwen3moe" : "llama";
    writer.AddString("general.architecture", architecture);
    std::map<std::string, int> sizes = {{"block_count", layers},
                                        {"context_length", 256},
                                        {"embedding_length", hidden},
                                        {"feed_forward_length", ffn},
                                        {"attention.head_count", heads},
                                        {"attention.head_count_kv", kv_heads},
                                        {"attention.key_length", head_dim},
                                        {"attention.value_length", head_dim},
                                        {"rope.dimension_count", head_dim}};
    if (experts > 0) {
      sizes.insert({{"expert_count", experts}, {"expert_used_count", top_k}, {"expert_feed_forward_length", ffn}});
    }
    for (const auto& [key, value] : sizes) {
      writer.AddUint32(absl::StrCat(architecture, ".", key), static_cast<uint32_t>(value));
    }
    writer.AddFloat(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    const auto norm = [&](const std::string& name, int size) {
      std::string bytes;
      for (int i = 0; i < size; ++i) bytes += GgufWriter::Bytes(1.0f);
      writer.AddTensor(name + ".weight", 0, {size}, bytes);
    };
    const auto matrix = [&](const std::string& prefix, const std::string& name, int rows, int cols, int count = 0) {
      const auto other = other_types.find(name);
      const GgufTensorType& own =
          *FindGgufTensorType(std::string_view(other == other_types.end() ? type : other->second));
      std::vector<int64_t> shape = {rows, cols};
      if (count > 0) shape.insert(shape.begin(), count);
      const int64_t size = int64_t{rows} * cols * std::max(1, count);
      const std::string bytes = RandomBlocks(own, size, &random);
      if (!as_floats) return writer.AddTensor(prefix + name + ".weight", own.number, shape, bytes);
      std::vector<float> floats(static_cast<size_t>(size));
      for (size_t i = 0; i * own.block_elements < floats.size(); ++i) {
        own.dequantize(reinterpret_cast<const uint8_t*>(&bytes[i * own.block_bytes]), &floats[i * own.block_elements]);
      }
      writer.AddTensor(prefix + name + ".weight", 0, shape,
                       {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)});
    };
    matrix("", "token_embd", vocab, hidden);
    norm("output_norm", hidden);
    if (!is_tied) matrix("", "output", vocab, hidden);
    for (int layer = 0; layer < layers; ++layer) {
      const std::string prefix = absl::StrCat("blk.", layer, ".");
      norm(prefix + "attn_norm", hidden);
      norm(prefix + "ffn_norm", hidden);
      matrix(prefix, "attn_q", heads * head_dim, hidden);
      matrix(prefix, "attn_k", kv_heads * head_dim, hidden);
      matrix(prefix, "attn_v", kv_heads * head_dim, hidden);
      matrix(prefix, "attn_output", hidden, heads * head_dim);
      if (experts > 0) {
        norm(prefix + "attn_q_norm", head_dim);
        norm(prefix + "attn_k_norm", head_dim);
        std::string router;
        for (int i = 0; i < experts * hidden; ++i) {
          router += GgufWriter::Bytes(static_cast<float>(random() % 2001) / 1e4f - 0.1f);
        }
        writer.AddTensor(prefix + "ffn_gate_inp.weight", 0, {experts, hidden}, router);
        matrix(prefix, "ffn_gate_exps", ffn, hidden, experts);
        matrix(prefix, "ffn_up_exps", ffn, hidden, experts);
        matrix(prefix, "ffn_down_exps", hidden, ffn, experts);
        continue;
      }
      matrix(prefix, "ffn_gate", ffn, hidden);
      matrix(prefix, "ffn_up", ffn, hidden);
      matrix(prefix, "ffn_down", hidden, ffn);
    }
    return writer.File();
  }
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_BLOCK_GGUF_H_
