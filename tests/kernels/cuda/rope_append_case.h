// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_ROPE_APPEND_CASE_H_
#define QUIRE_TESTS_KERNELS_CUDA_ROPE_APPEND_CASE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cuda/kv_unit.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/reference/dense.h"
#include "kernels/reference/quantized.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire::cuda {

// What differs between models.
struct RopeVariant {
  bool has_norm = false;
  int unrotated = 0;  // Dimensions of a head that do not rotate.
  bool norms_after_rotation = false;
  float query_growth = 0;
};

// Some tokens whose queries, keys and values a kernel rotates and stores in one layer's pool, in bfloat16, float16 or
// int8, and the check of the result. The kernel may run in the emulator or on a device.
template <int kHeadDim>
class RopeAppendCase {
 public:
  static constexpr int kHeads = 4, kKvHeads = 2, kTokens = 11, kPositions = 300, kSpan = 90,
                       kAllHeads = kHeads + 2 * kKvHeads;

  RopeAppendCase(int block_size, const RopeVariant& variant, DataType type = DataType::kBFloat16, bool int8_kv = false)
      : layout({.num_layers = 1,
                .num_kv_heads = kKvHeads,
                .head_dim = kHeadDim,
                .block_size = block_size,
                .type = int8_kv ? KvType::kInt8 : KvTypeOf(type)}),
        num_blocks(2 * kTokens),
        type_(type),
        variant_(variant),
        rotary_dim_(kHeadDim - variant.unrotated) {
    Random random(17);
    std::vector<float> values = random.Normals(size_t(kTokens) * kAllHeads * kHeadDim);
    if (int8_kv) {  // Heads of V that are not like others.
      const auto head_of = [&](int token) { return values.begin() + ((token + 1) * kAllHeads - 1) * kHeadDim; };
      std::fill_n(head_of(3), kHeadDim, 0.0f);
      head_of(4)[kHeadDim - 1] = INFINITY;
      head_of(5)[0] = NAN;
      std::fill_n(head_of(6), kHeadDim, type == DataType::kBFloat16 ? 0x1p-120f : 0.0f);
    }
    for (const float value : values) {
      qkv.push_back(type == DataType::kBFloat16 ? ToBFloat16(value).bits : ToFloat16(value).bits);
      before_.push_back(double{Value(qkv.back())});
    }
    std::vector<int64_t> all_slots(int64_t{num_blocks} * block_size);
    for (size_t i = 0; i < all_slots.size(); ++i) all_slots[i] = int64_t(i);
    random.Shuffle(&all_slots);
    for (int i = 0; i < kTokens; ++i) {
      positions.push_back(i == 0 ? 0 : random.Int(0, kPositions - 1));
      slots.push_back(all_slots[i]);
    }
    const int half = rotary_dim_ / 2;
    for (int i = 0; i < half; ++i) inv_freq_.push_back(std::pow(10000.0, -1.0 * i / half));
    rotary_table.resize(size_t(kPositions) * rotary_dim_);
    for (int p = 0; p < kPositions; ++p) {
      for (int i = 0; i < half; ++i) {
        rotary_table[size_t(p) * rotary_dim_ + i] = float(std::cos(p * inv_freq_[i]));
        rotary_table[size_t(p) * rotary_dim_ + half + i] = float(std::sin(p * inv_freq_[i]));
      }
    }
    q_norm = random.Normals(kHeadDim);
    k_norm = random.Normals(kHeadDim);
  }

  const KvLayout layout;
  const int num_blocks;               // In the pool.
  std::vector<uint16_t> qkv;          // [kTokens, kAllHeads, kHeadDim] bfloat16 or float16
  std::vector<int32_t> positions;     // [kTokens]
  std::vector<int64_t> slots;         // [kTokens]
  std::vector<float> rotary_table;    // [kPositions, rotary dimensions]
  std::vector<float> q_norm, k_norm;  // [kHeadDim]

  size_t pool_elements() const { return num_blocks * layout.block_bytes() / sizeof(uint16_t); }  // Of 16 bits.

  // Returns the arguments of the kernel without the pointers. SetNorms adds the arguments of the norms.
  RopeAppendKernelArgs Args() const {
    RopeAppendKernelArgs args{};
    args.norm_epsilon = 1e-6f;
    args.num_tokens = kTokens;
    args.num_heads = kHeads;
    args.num_kv_heads = kKvHeads;
    args.block_size = layout.block_size;
    args.rotary_dim = rotary_dim_;
    args.norms_after_rotation = variant_.norms_after_rotation;
    args.query_growth = variant_.query_growth;
    args.query_span = kSpan;
    return args;
  }
  void SetNorms(const float* q, const float* k, RopeAppendKernelArgs* args) const {
    args->q_norm = variant_.has_norm ? q : nullptr;
    args->k_norm = variant_.has_norm ? k : nullptr;
  }

  // Compares queries in `qkv_after`, and keys and values in `pool`, with the reference.
  void Check(const uint16_t* qkv_after, const uint16_t* pool) const {
    std::vector<float> actual;
    std::vector<double> expected;
    for (int token = 0; token < kTokens; ++token) {
      for (int head = 0; head < kAllHeads; ++head) {
        const auto first = before_.begin() + (token * kAllHeads + head) * kHeadDim;
        std::vector<double> row(first, first + kHeadDim);
        const bool is_query = head < kHeads, is_value = head >= kHeads + kKvHeads;
        if (!is_value) {
          const auto normalize = [&] { row = reference::RmsNorm(row, Doubles(is_query ? q_norm : k_norm), 1e-6); };
          if (variant_.has_norm && !variant_.norms_after_rotation) normalize();
          reference::Rotate(positions[token], inv_freq_, 1, row.data());
          if (variant_.has_norm && variant_.norms_after_rotation) normalize();
          const double growth = is_query ? double{variant_.query_growth} : 0;
          for (double& value : row) value *= 1 + growth * std::log1p(positions[token] / kSpan);
        }
        if (!is_query && layout.type == KvType::kInt8) {
          // Nothing rounds a V, or a K without a norm and at position 0, but the formula.
          CheckInt8(row, is_value || (positions[token] == 0 && !variant_.has_norm), slots[token],
                    (head - kHeads) % kKvHeads, is_value, reinterpret_cast<const int8_t*>(pool));
          continue;
        }
        expected.insert(expected.end(), row.begin(), row.end());
        for (int d = 0; d < kHeadDim; ++d) {
          const uint16_t bits = is_query ? qkv_after[(token * kAllHeads + head) * kHeadDim + d]
                                         : pool[PoolIndex(slots[token], (head - kHeads) % kKvHeads, is_value, d)];
          actual.push_back(Value(bits));
        }
      }
    }
    EXPECT_LT(RelativeError(actual, expected), 5e-3);
  }

 private:
  float Value(uint16_t bits) const {
    return type_ == DataType::kBFloat16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
  }
  size_t PoolIndex(int64_t slot, int kv_head, bool is_value, int d) const {
    const int offset = int(slot % layout.block_size);
    const size_t unit = layout.unit_start(uint32_t(slot / layout.block_size), kv_head, offset);
    const int place = KvUnit<kHeadDim>{layout.unit_tokens()}.Place(offset % layout.unit_tokens(), d / 8);
    return unit + (is_value ? layout.value_start() : 0) + place * 8 + d % 8;
  }

  // Compares a K or V in the pool with `row`: bit by bit, or up to the rounding.
  void CheckInt8(const std::vector<double>& row, bool is_exact, int64_t slot, int kv_head, bool is_value,
                 const int8_t* pool) const {
    const int offset = int(slot % layout.block_size), token = offset % layout.unit_tokens();
    const int8_t* const unit = pool + layout.unit_start(uint32_t(slot / layout.block_size), kv_head, offset);
    const KvUnit<kHeadDim, 1> shape = {layout.unit_tokens()};
    float scale;
    memcpy(&scale, unit + (is_value ? layout.value_scales_start() : layout.key_scales_start()) + token * sizeof(float),
           sizeof(scale));
    const std::vector<float> x(row.begin(), row.end());
    const reference::QuantizedRow expected = reference::Quantize(x.data(), kHeadDim);
    if (!std::isnan(expected.scale)) {
      EXPECT_NEAR(scale, expected.scale, is_exact ? 0 : 1e-5 * expected.scale);
    } else {
      EXPECT_TRUE(std::isnan(scale));
    }
    for (int d = 0; d < kHeadDim; ++d) {
      const int at = (is_value ? int(layout.value_start()) : 0) + 16 * shape.Place(token, d / 16);
      const int8_t value = unit[at + d % 8 * 2 + d % 16 / 8];
      if (is_exact) {
        ASSERT_EQ(int(value), expected.values[d]) << "dimension " << d;
      } else {
        ASSERT_NEAR(value * double{scale}, row[d], 0.501 * double{scale}) << "dimension " << d;
      }
    }
  }

  const DataType type_;  // Of qkv.
  const RopeVariant variant_;
  const int rotary_dim_;
  std::vector<double> before_;    // The values of qkv.
  std::vector<double> inv_freq_;  // [rotary_dim_ / 2]
};

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_ROPE_APPEND_CASE_H_
