// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/attention_cases.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention_plan.h"
#include "kernels/cuda/kv_unit.h"

namespace quire::cuda {
namespace {

uint16_t Bits(float value, DataType type) {
  return type == DataType::kBFloat16 ? ToBFloat16(value).bits : ToFloat16(value).bits;
}

int Place(int head_dim, int unit_tokens, int token, int chunk) {
  switch (head_dim) {
    case 16:
      return KvUnit<16>{unit_tokens}.Place(token, chunk);
    case 32:
      return KvUnit<32>{unit_tokens}.Place(token, chunk);
    case 80:
      return KvUnit<80>{unit_tokens}.Place(token, chunk);
    case 96:
      return KvUnit<96>{unit_tokens}.Place(token, chunk);
    case 128:
      return KvUnit<128>{unit_tokens}.Place(token, chunk);
    case 256:
      return KvUnit<256>{unit_tokens}.Place(token, chunk);
    default:
      return KvUnit<64>{unit_tokens}.Place(token, chunk);
  }
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
      {{32, 1, 64, 16, bf16}, {{45, 1}}},                           // More heads than the rows of a small tile.
      {{8, 2, 64, 16, bf16, 50}, {{300, 1}, {300, 40}, {20, 20}}},  // Sliding windows.
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
  uint16_t* const elements = static_cast<uint16_t*>(pool->data());
  for (const Slice& slice : slices) {
    for (int token = slice.begin; token < slice.end; ++token) {
      const int offset = token % shape.block_size;
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        const size_t unit = layout.unit_start(slice.table[token / shape.block_size], head, offset);
        for (int d = 0; d < shape.head_dim; ++d) {
          const int place = Place(shape.head_dim, layout.unit_tokens(), offset % layout.unit_tokens(), d / 8);
          const size_t from = (size_t(token) * shape.num_kv_heads + head) * shape.head_dim + d;
          elements[unit + place * 8 + d % 8] = Bits(slice.sequence->k[from], shape.type);
          elements[unit + layout.value_start() + place * 8 + d % 8] = Bits(slice.sequence->v[from], shape.type);
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
    const std::vector<float> q = Rounded(slice.sequence->q, shape.type), k = Rounded(slice.sequence->k, shape.type),
                             v = Rounded(slice.sequence->v, shape.type);
    for (int token = slice.begin; token < slice.end; ++token) {
      for (int head = 0; head < shape.num_heads; ++head) {
        const float* query = &q[(size_t(token) * shape.num_heads + head) * shape.head_dim];
        const auto row = [&](const std::vector<float>& from, int position) {
          return &from[(size_t(position) * shape.num_kv_heads + head / group_size) * shape.head_dim];
        };
        std::vector<double> weights, values(shape.head_dim);
        double largest = -INFINITY, sum = 0;
        const int first = FirstVisible(token, shape.window);
        for (int position = first; position <= token; ++position) {
          double score = 0;
          for (int d = 0; d < shape.head_dim; ++d) score += double{query[d]} * row(k, position)[d];
          weights.push_back(score / std::sqrt(double(shape.head_dim)));
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
