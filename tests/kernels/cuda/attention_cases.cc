// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/attention_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention_plan.h"
#include "kernels/cuda/kv_unit.h"
#include "kernels/reference/dense.h"
#include "kernels/reference/quantized.h"

namespace quire::cuda {
namespace {

uint16_t Bits(float value, DataType type) {
  return type == DataType::kBFloat16 ? ToBFloat16(value).bits : ToFloat16(value).bits;
}

template <int kElementBytes>
int Place(int head_dim, int unit_tokens, int token, int chunk) {
  switch (head_dim) {
    case 16:
      return KvUnit<16, kElementBytes>{unit_tokens}.Place(token, chunk);
    case 32:
      return KvUnit<32, kElementBytes>{unit_tokens}.Place(token, chunk);
    case 80:
      return KvUnit<80, kElementBytes>{unit_tokens}.Place(token, chunk);
    case 96:
      return KvUnit<96, kElementBytes>{unit_tokens}.Place(token, chunk);
    case 128:
      return KvUnit<128, kElementBytes>{unit_tokens}.Place(token, chunk);
    case 256:
      return KvUnit<256, kElementBytes>{unit_tokens}.Place(token, chunk);
    default:
      return KvUnit<64, kElementBytes>{unit_tokens}.Place(token, chunk);
  }
}

// Stores one head of a token, which is K, or V, of token `token` of a unit.
void StoreHead(const KvLayout& layout, const float* head, DataType type, bool is_value, int token, uint16_t* unit) {
  uint16_t* const matrix = unit + (is_value ? layout.value_start() : 0);
  for (int d = 0; d < layout.head_dim; ++d) {
    matrix[Place<2>(layout.head_dim, layout.unit_tokens(), token, d / 8) * 8 + d % 8] = Bits(head[d], type);
  }
}

void StoreInt8Head(const KvLayout& layout, const float* head, bool is_value, int token, int8_t* unit) {
  const reference::QuantizedRow rounded = reference::Quantize(head, layout.head_dim);
  int8_t* const matrix = unit + (is_value ? layout.value_start() : 0);
  for (int d = 0; d < layout.head_dim; ++d) {
    const int chunk = Place<1>(layout.head_dim, layout.unit_tokens(), token, d / 16);
    matrix[chunk * 16 + d % 8 * 2 + d % 16 / 8] = int8_t(rounded.values[d]);
  }
  const size_t scales = is_value ? layout.value_scales_start() : layout.key_scales_start();
  memcpy(unit + scales + token * sizeof(float), &rounded.scale, sizeof(float));
}

// Returns K or V [tokens, num_kv_heads, head_dim] as they are stored.
std::vector<double> Stored(const Shape& shape, const std::vector<float>& values) {
  if (!shape.int8_kv) return Doubles(Rounded(values, shape.type));
  std::vector<double> stored;
  for (size_t at = 0; at < values.size(); at += shape.head_dim) {
    const reference::QuantizedRow rounded = reference::Quantize(&values[at], shape.head_dim);
    for (const int value : rounded.values) stored.push_back(double{rounded.scale} * value);
  }
  return stored;
}

}  // namespace

std::vector<AttentionCase> AttentionCases() {
  const DataType bf16 = DataType::kBFloat16, f16 = DataType::kFloat16;
  return {
      {{8, 2, 128, 16, bf16}, {{517, 1}, {33, 1}, {1, 1}}},  // Splits and merges.
      {{8, 2, 128, 16, f16}, {{300, 1}, {16, 1}}},
      {{4, 4, 64, 16, bf16}, {{100, 1}, {257, 1}}},  // No groups.
      {{16, 1, 64, 32, f16}, {{70, 1}}},             // One KV head, larger blocks.
      {{5, 1, 80, 16, bf16}, {{90, 1}, {17, 3}}},    // Narrow last panels.
      {{6, 2, 96, 64, bf16}, {{130, 1}, {64, 2}}},
      {{2, 1, 256, 16, bf16}, {{40, 1}, {40, 20}}},
      {{4, 2, 64, 1, bf16}, {{37, 1}, {5, 2}}},  // Small blocks.
      {{4, 2, 128, 2, bf16}, {{37, 1}}},
      {{4, 2, 64, 4, f16}, {{37, 1}}},
      {{5, 1, 80, 8, bf16}, {{37, 1}}},
      {{6, 2, 96, 1, bf16}, {{37, 18}}},
      {{4, 2, 128, 8, bf16}, {{37, 1}}},
      {{8, 2, 64, 16, bf16}, {{150, 70}, {40, 40}}},  // Prompts.
      {{8, 2, 128, 16, f16}, {{330, 60}}},
      {{32, 1, 64, 16, bf16}, {{45, 1}}},                            // More heads than the rows of a small tile.
      {{8, 2, 64, 16, bf16, 50}, {{300, 1}, {300, 40}, {20, 20}}},   // Sliding windows.
      {{8, 2, 64, 16, bf16, 0, false, 0.7f}, {{300, 1}, {40, 40}}},  // Softcaps.
      {{2, 1, 256, 16, bf16, 30, false, 1.5f}, {{40, 1}, {40, 20}}},
  };
}

std::vector<AttentionCase> Int8KvCases() {
  const DataType bf16 = DataType::kBFloat16, f16 = DataType::kFloat16;
  return {
      {{8, 2, 128, 16, bf16, 0, true}, {{517, 1}, {33, 1}, {1, 1}}},  // Splits and merges.
      {{8, 2, 128, 16, f16, 0, true}, {{300, 1}, {16, 1}, {90, 30}}},
      {{16, 1, 64, 32, f16, 0, true}, {{70, 1}, {257, 1}}},           // One KV head, larger blocks.
      {{5, 1, 80, 16, bf16, 0, true}, {{90, 1}, {17, 3}, {60, 30}}},  // An odd number of chunks.
      {{6, 2, 96, 64, bf16, 0, true}, {{130, 1}, {64, 12}}},          // A narrow panel.
      {{8, 2, 64, 16, bf16, 0, true}, {{150, 70}, {40, 40}}},         // Prompts.
      {{8, 2, 64, 16, bf16, 50, true}, {{300, 1}, {300, 40}, {20, 20}}},
      {{8, 2, 64, 16, bf16, 0, true, 0.7f}, {{300, 1}, {40, 40}}},
  };
}

std::vector<Slice> MakeSlices(const Shape& shape, const std::vector<std::pair<int, int>>& tokens_and_queries,
                              std::vector<Sequence>* sequences, PagedPool* pool, Random* random) {
  sequences->clear();
  for (const auto& [num_tokens, num_queries] : tokens_and_queries) {
    sequences->push_back(MakeSequence(shape, num_tokens, random));
  }
  std::vector<Slice> slices;
  for (size_t i = 0; i < sequences->size(); ++i) {
    const auto [num_tokens, num_queries] = tokens_and_queries[i];
    const Slice whole = {&(*sequences)[i], pool->MakeTable(num_tokens), 0, num_tokens};
    StoreTokens(shape, {whole}, pool);
    slices.push_back({whole.sequence, whole.table, num_tokens - num_queries, num_tokens});
  }
  return slices;
}

void StoreTokens(const Shape& shape, const std::vector<Slice>& slices, PagedPool* pool) {
  const KvLayout& layout = pool->layout();
  for (const Slice& slice : slices) {
    for (int token = slice.begin; token < slice.end; ++token) {
      const int offset = token % shape.block_size, in_unit = offset % layout.unit_tokens();
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        const size_t unit = layout.unit_start(slice.table[token / shape.block_size], head, offset);
        const size_t from = (size_t(token) * shape.num_kv_heads + head) * shape.head_dim;
        for (const bool is_value : {false, true}) {
          const float* const values = (is_value ? slice.sequence->v : slice.sequence->k).data() + from;
          if (shape.int8_kv) {
            StoreInt8Head(layout, values, is_value, in_unit, static_cast<int8_t*>(pool->data()) + unit);
          } else {
            StoreHead(layout, values, shape.type, is_value, in_unit, static_cast<uint16_t*>(pool->data()) + unit);
          }
        }
      }
    }
  }
}

Beams::Beams(const Shape& shape, int count) : random(13), pool(LayoutOf(shape), 40 + 3 * count, &random) {
  const int num_shared = kSharedBlocks * shape.block_size;
  const Sequence parent = MakeSequence(shape, num_shared, &random);
  const std::vector<uint32_t> shared = pool.MakeTable(num_shared);
  StoreTokens(shape, {{&parent, shared, 0, num_shared}}, &pool);
  for (int i = 0; i < count; ++i) {
    Sequence beam = MakeSequence(shape, num_shared + 20 + i, &random);
    std::copy(parent.q.begin(), parent.q.end(), beam.q.begin());
    std::copy(parent.k.begin(), parent.k.end(), beam.k.begin());
    std::copy(parent.v.begin(), parent.v.end(), beam.v.begin());
    sequences.push_back(std::move(beam));
  }
  for (const Sequence& beam : sequences) {
    std::vector<uint32_t> table = shared;
    const std::vector<uint32_t> own = pool.MakeTable(beam.num_tokens - num_shared);
    table.insert(table.end(), own.begin(), own.end());
    StoreTokens(shape, {{&beam, table, num_shared, beam.num_tokens}}, &pool);
    slices.push_back({&beam, table, beam.num_tokens - 1, beam.num_tokens});
  }
}
std::vector<double> ReferenceAttention(const Shape& shape, const std::vector<Slice>& slices) {
  std::vector<double> out;
  const int group_size = shape.num_heads / shape.num_kv_heads;
  for (const Slice& slice : slices) {
    const std::vector<float> q = Rounded(slice.sequence->q, shape.type);
    const std::vector<double> k = Stored(shape, slice.sequence->k), v = Stored(shape, slice.sequence->v);
    for (int token = slice.begin; token < slice.end; ++token) {
      for (int head = 0; head < shape.num_heads; ++head) {
        const float* query = &q[(size_t(token) * shape.num_heads + head) * shape.head_dim];
        const auto row = [&](const std::vector<double>& from, int position) {
          return &from[(size_t(position) * shape.num_kv_heads + head / group_size) * shape.head_dim];
        };
        std::vector<double> weights, values(shape.head_dim);
        double largest = -INFINITY, sum = 0;
        const int first = FirstVisible(token, shape.window);
        for (int position = first; position <= token; ++position) {
          double score = 0;
          for (int d = 0; d < shape.head_dim; ++d) score += double{query[d]} * row(k, position)[d];
          score /= std::sqrt(double(shape.head_dim));
          weights.push_back(shape.softcap > 0 ? reference::Softcap(score, double{shape.softcap}) : score);
          largest = std::max(largest, weights.back());
        }
        for (double& weight : weights) sum += weight = std::exp(weight - largest);
        for (int position = first; position <= token; ++position) {
          for (int d = 0; d < shape.head_dim; ++d) values[d] += weights[position - first] / sum * row(v, position)[d];
        }
        out.insert(out.end(), values.begin(), values.end());
      }
    }
  }
  return out;
}

}  // namespace quire::cuda
