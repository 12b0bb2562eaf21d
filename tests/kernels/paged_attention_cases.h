// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_PAGED_ATTENTION_CASES_H_
#define QUIRE_TESTS_KERNELS_PAGED_ATTENTION_CASES_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/paged_attention.h"
#include "kernels/reference/dense.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {

struct PagedShape {
  DataType type = DataType::kFloat32;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 64;
  int block_size = 16;
  int gap = 0;  // Unused elements between the heads of the arrays.
  uint64_t placement_seed = 1;
  double scale = 0;  // 0 means 1 / sqrt(head_dim).
};

// A cache in the caller's order with random contents, whose blocks are assigned at random. Tokens that nothing is
// stored in are NaN, and table entries beyond a context are not valid blocks.
class PagedCase {
 public:
  PagedCase(const PagedShape& shape, std::vector<int> context_lens, uint64_t seed)
      : shape_(shape), context_lens_(context_lens.begin(), context_lens.end()) {
    for (const int context_len : context_lens) {
      num_blocks_ += NumBlocks(context_len);
      max_blocks_ = std::max(max_blocks_, NumBlocks(context_len));
    }
    std::vector<int32_t> free(num_blocks_);
    for (int i = 0; i < num_blocks_; ++i) free[i] = i;
    Random placement(shape.placement_seed);
    placement.Shuffle(&free);
    tables_.assign(context_lens.size() * max_blocks_, -1000);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const size_t cache_elements = size_t(num_blocks_) * shape.block_size * shape.num_kv_heads * Padded();
    keys_.assign(cache_elements, nan);
    values_.assign(cache_elements, nan);
    query_.assign(context_lens.size() * shape.num_heads * Padded(), nan);
    Random random(seed);
    for (size_t s = 0; s < context_lens.size(); ++s) {
      for (int i = 0; i < NumBlocks(context_lens[s]); ++i, free.pop_back()) Table(int(s))[i] = free.back();
      for (int h = 0; h < shape.num_heads; ++h) Fill(&random, &query_[(s * shape.num_heads + h) * Padded()]);
      for (int t = 0; t < context_lens[s]; ++t) {
        for (int h = 0; h < shape.num_kv_heads; ++h) {
          Fill(&random, &keys_[CacheStart(int(s), t, h)]);
          Fill(&random, &values_[CacheStart(int(s), t, h)]);
        }
      }
    }
    encoded_query_ = Encoded(query_, shape.type);
    encoded_keys_ = Encoded(keys_, shape.type);
    encoded_values_ = Encoded(values_, shape.type);
  }

  const PagedShape& shape() const { return shape_; }
  std::vector<int32_t>& context_lens() { return context_lens_; }
  int32_t* Table(int sequence) { return tables_.data() + size_t(sequence) * max_blocks_; }
  size_t num_blocks() const { return num_blocks_; }
  size_t out_bytes() const { return context_lens_.size() * shape_.num_heads * shape_.head_dim * SizeOf(shape_.type); }
  const std::vector<char>& query() const { return encoded_query_; }
  const std::vector<char>& keys() const { return encoded_keys_; }
  const std::vector<char>& values() const { return encoded_values_; }
  const std::vector<int32_t>& tables() const { return tables_; }

  PagedAttentionArgs Args(void* out) const {
    const int64_t token = int64_t{shape_.num_kv_heads} * Padded();
    const int longest = context_lens_.empty() ? 0 : *std::max_element(context_lens_.begin(), context_lens_.end());
    return {.query = encoded_query_.data(),
            .query_strides = {int64_t{shape_.num_heads} * Padded(), Padded()},
            .key_cache = encoded_keys_.data(),
            .key_strides = {shape_.block_size * token, token, Padded()},
            .value_cache = encoded_values_.data(),
            .value_strides = {shape_.block_size * token, token, Padded()},
            .block_tables = tables_.data(),
            .block_tables_stride = max_blocks_,
            .context_lens = context_lens_.data(),
            .out = out,
            .type = shape_.type,
            .num_seqs = int64_t(context_lens_.size()),
            .num_heads = shape_.num_heads,
            .head_dim = shape_.head_dim,
            .num_blocks = num_blocks_,
            .block_size = shape_.block_size,
            .num_kv_heads = shape_.num_kv_heads,
            .max_blocks = max_blocks_,
            .max_context_len = std::max(1, std::min(longest, max_blocks_ * shape_.block_size)),
            .scale = Scale()};
  }

  // Returns [num_seqs, num_heads, head_dim] in double.
  std::vector<double> Expected() const {
    std::vector<double> out;
    const int group = shape_.num_heads / shape_.num_kv_heads, head_dim = shape_.head_dim;
    for (size_t s = 0; s < context_lens_.size(); ++s) {
      for (int head = 0; head < shape_.num_heads; ++head) {
        std::vector<double> k, v;
        for (int t = 0; t < context_lens_[s]; ++t) {
          const size_t start = CacheStart(int(s), t, head / group);
          k.insert(k.end(), keys_.begin() + start, keys_.begin() + start + head_dim);
          v.insert(v.end(), values_.begin() + start, values_.begin() + start + head_dim);
        }
        const float* q = &query_[(s * shape_.num_heads + head) * Padded()];
        std::vector<double> row(head_dim, 0);
        if (context_lens_[s] > 0) {
          row = reference::Attend(std::vector<double>(q, q + head_dim), k, v, 0, context_lens_[s], Scale());
        }
        out.insert(out.end(), row.begin(), row.end());
      }
    }
    return out;
  }

  // The tolerance of attention_test for float32. For the other types the result is rounded. With bfloat16, the queries
  // and weights are rounded as well where the machine multiplies bfloat16.
  static double Tolerance(DataType type) {
    return type == DataType::kFloat32 ? 2e-6 : type == DataType::kFloat16 ? 1e-3 : 1e-2;
  }

  std::string Description() const {
    return std::string(Name(shape_.type)) + " heads " + std::to_string(shape_.num_heads) + "/" +
           std::to_string(shape_.num_kv_heads) + " of " + std::to_string(shape_.head_dim) + ", blocks of " +
           std::to_string(shape_.block_size) + ", gap " + std::to_string(shape_.gap);
  }

 private:
  int NumBlocks(int context_len) const { return (context_len + shape_.block_size - 1) / shape_.block_size; }
  int64_t Padded() const { return shape_.head_dim + shape_.gap; }
  double Scale() const { return shape_.scale != 0 ? shape_.scale : 1 / std::sqrt(double(shape_.head_dim)); }
  size_t CacheStart(int sequence, int token, int head) const {
    const size_t block = tables_[size_t(sequence) * max_blocks_ + token / shape_.block_size];
    return ((block * shape_.block_size + token % shape_.block_size) * shape_.num_kv_heads + head) * Padded();
  }
  void Fill(Random* random, float* to) const {
    for (int d = 0; d < shape_.head_dim; ++d) to[d] = Rounded(random->Normal(), shape_.type);
  }

  PagedShape shape_;
  std::vector<int32_t> context_lens_;
  std::vector<int32_t> tables_;
  std::vector<float> query_, keys_, values_;
  std::vector<char> encoded_query_, encoded_keys_, encoded_values_;
  int num_blocks_ = 0;
  int max_blocks_ = 0;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KERNELS_PAGED_ATTENTION_CASES_H_
