// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_SMALL_GGUF_H_
#define QUIRE_TESTS_WORKER_MODEL_SMALL_GGUF_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/half_float.h"
#include "tests/worker/model/gguf_writer.h"
#include "worker/model/gguf_types.h"

namespace quire {

// A model of one layer in a GGUF file, with random weights.
struct SmallGguf {
  static constexpr int kHidden = 256, kFfn = 256, kVocab = 32, kHeads = 8, kKvHeads = 4, kHeadDim = 32;
  static constexpr int kExperts = 4, kExpertFfn = 64;  // Of the architecture qwen3moe, which has no other MLP.

  // Returns numbers of float32 in [-scale, scale].
  static std::string RandomFloats(int count, float scale, std::mt19937* random) {
    std::string bytes;
    for (int i = 0; i < count; ++i) {
      bytes += GgufWriter::Bytes((static_cast<float>((*random)() % 2001) / 1000 - 1) * scale);
    }
    return bytes;
  }

  // Returns the file. `matrix_type` is the type of the matrices of the layer, and `store` makes the bytes of one of
  // them. `more` adds what else the file has.
  static std::string File(uint32_t matrix_type, const std::function<std::string(int rows, int cols)>& store,
                          std::mt19937* random, const std::function<void(GgufWriter*)>& more = nullptr,
                          const std::string& architecture = "llama") {
    GgufWriter writer;
    const std::string prefix = architecture + ".";
    writer.AddString("general.architecture", architecture);
    writer.AddUint32(prefix + "block_count", 1);
    writer.AddUint32(prefix + "context_length", 128);
    writer.AddUint32(prefix + "embedding_length", kHidden);
    writer.AddUint32(prefix + "feed_forward_length", kFfn);
    writer.AddUint32(prefix + "attention.head_count", kHeads);
    writer.AddUint32(prefix + "attention.head_count_kv", kKvHeads);
    writer.AddFloat(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
    if (more) more(&writer);
    const auto vector = [&](const std::string& name, float value, int size = kHidden) {
      std::string bytes;
      for (int i = 0; i < size; ++i) bytes += GgufWriter::Bytes(value);
      writer.AddTensor(name, 0, {size}, bytes);
    };
    const bool has_experts = architecture == "qwen3moe";
    if (has_experts) {
      writer.AddUint32(prefix + "expert_count", kExperts);
      writer.AddUint32(prefix + "expert_used_count", 2);
      writer.AddUint32(prefix + "expert_feed_forward_length", kExpertFfn);
      writer.AddTensor("blk.0.ffn_gate_inp.weight", 0, {kExperts, kHidden},
                       RandomFloats(kExperts * kHidden, 1, random));
      for (const char* name : {"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"}) vector(name, 1, kHeadDim);
    }
    writer.AddTensor("token_embd.weight", 0, {kVocab, kHidden}, RandomFloats(kVocab * kHidden, 1, random));
    vector("output_norm.weight", 1);
    vector("blk.0.attn_norm.weight", 1);
    vector("blk.0.ffn_norm.weight", 1);
    const auto matrix = [&](const std::string& name, int rows, int cols) {
      writer.AddTensor(absl::StrCat("blk.0.", name, ".weight"), matrix_type, {rows, cols}, store(rows, cols));
    };
    matrix("attn_q", kHeads * kHeadDim, kHidden);
    matrix("attn_k", kKvHeads * kHeadDim, kHidden);
    matrix("attn_v", kKvHeads * kHeadDim, kHidden);
    matrix("attn_output", kHidden, kHeads * kHeadDim);
    const auto experts = [&](const std::string& name, int rows, int cols) {
      std::string bytes;
      for (int i = 0; i < kExperts; ++i) bytes += store(rows, cols);
      writer.AddTensor(absl::StrCat("blk.0.", name, ".weight"), matrix_type, {kExperts, rows, cols}, bytes);
    };
    if (has_experts) {
      experts("ffn_gate_exps", kExpertFfn, kHidden);
      experts("ffn_up_exps", kExpertFfn, kHidden);
      experts("ffn_down_exps", kHidden, kExpertFfn);
      return writer.File();
    }
    matrix("ffn_gate", kFfn, kHidden);
    matrix("ffn_up", kFfn, kHidden);
    matrix("ffn_down", kHidden, kFfn);
    return writer.File();
  }
};

// Q4_0 blocks [rows, cols] with small scales, and the same numbers in float32.
struct Q4Matrix {
  static constexpr uint32_t kType = 2;  // The number of the type in a file.

  std::string blocks;
  std::string floats;
};

inline Q4Matrix RandomQ4(int rows, int cols, std::mt19937* random) {
  const GgufTensorType& type = *FindGgufTensorType(std::string_view("Q4_0"));
  Q4Matrix matrix;
  for (int block = 0; block < rows * cols / 32; ++block) {
    matrix.blocks += GgufWriter::Bytes(ToFloat16(static_cast<float>((*random)() % 100 + 1) * 1e-4f));
    for (int i = 0; i < 16; ++i) matrix.blocks.push_back(static_cast<char>((*random)()));
    float values[32];
    type.dequantize(reinterpret_cast<const uint8_t*>(matrix.blocks.data()) + matrix.blocks.size() - 18, values);
    matrix.floats.append(reinterpret_cast<const char*>(values), sizeof(values));
  }
  return matrix;
}

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_SMALL_GGUF_H_
