// SPDX-License-Identifier: Apache-2.0

#include "kernels/reference/int8_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/softmax_state.h"

namespace quire::reference {
namespace {

constexpr int kLanes = 16, kTileTokens = 64, kSplitTokens = 512, kMaxWord = 32767;

// Whole numbers of 16 bits: x is about values * scale.
struct Words {
  std::vector<int> values;
  float scale;
};

Words RoundToWords(const std::vector<float>& x) {
  Words words = {std::vector<int>(x.size()), 0};
  float largest = 0;
  for (const float value : x) {
    if (!std::isfinite(value)) {
      words.scale = std::numeric_limits<float>::quiet_NaN();
      return words;
    }
    largest = std::max(largest, std::abs(value));
  }
  if (largest < 0x1p-100f) return words;
  words.scale = largest / kMaxWord;
  const float inverse = kMaxWord / largest;
  for (size_t i = 0; i < x.size(); ++i) words.values[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
  return words;
}

// The sum of the lanes of a vector: i and i + 8, then i and i + 4, and so on.
float SumOfLanes(std::vector<float> lanes) {
  for (int n = kLanes / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  }
  return lanes[0];
}

// Adds tokens to the softmax of one query.
class Attention {
 public:
  Attention(const std::vector<float>& q, const Int8Head& head, float scale, bool is_fused)
      : head_(head), query_(RoundToWords(q)), query_scale_(query_.scale * scale), is_fused_(is_fused) {}

  std::vector<float> Run(int begin, int end) {
    SoftmaxState all = {-std::numeric_limits<float>::infinity(), 0};
    std::vector<float> all_values(query_.values.size());
    for (int split = begin / kSplitTokens; split * kSplitTokens < end; ++split) {
      state_ = {-std::numeric_limits<float>::infinity(), 0};
      values_.assign(query_.values.size(), 0.0f);
      const int first = std::max(begin, split * kSplitTokens), last = std::min(end, (split + 1) * kSplitTokens);
      for (int tile = first / kTileTokens * kTileTokens; tile < last; tile += kTileTokens) AddTile(tile, first, last);
      Join(&all, &all_values);
    }
    for (float& value : all_values) value /= all.sum;
    return all_values;
  }

 private:
  float MultiplyAdd(float a, float b, float c) const { return is_fused_ ? std::fma(a, b, c) : a * b + c; }

  // The polynomial of kernels/cpu/vector_math.h.
  float Exp(float x) const {
    if (x <= -87.0f) return 0;
    const float clamped = std::min(88.0f, x);
    const float n = std::nearbyint(clamped * 1.44269504f);
    float r = MultiplyAdd(n, -0.693359375f, clamped);
    r = MultiplyAdd(n, 2.12194440e-4f, r);
    float p = 0.0013813144760206342f;
    for (const float coefficient :
         {0.008369418792426586f, 0.04166845604777336f, 0.16666515171527863f, 0.4999999403953552f}) {
      p = MultiplyAdd(p, r, coefficient);
    }
    return std::ldexp(MultiplyAdd(p, r * r, r) + 1.0f, static_cast<int>(n));
  }

  float Score(int token) const {
    const QuantizedRow& key = head_.keys[token];
    int64_t sum = 0;
    for (size_t d = 0; d < key.values.size(); ++d) sum += int64_t{query_.values[d]} * key.values[d];
    return static_cast<float>(sum) * (query_scale_ * key.scale);
  }

  // Adds the tokens of the tile that are in [begin, end).
  void AddTile(int tile, int begin, int end) {
    const int first = std::max(tile, begin), last = std::min(tile + kTileTokens, end);
    std::vector<float> scores;
    for (int token = first; token < last; ++token) scores.push_back(Score(token));
    const float old_max = state_.max, max = std::max(old_max, *std::max_element(scores.begin(), scores.end()));
    std::vector<float> lanes(kLanes), scaled;
    for (int token = first; token < last; ++token) {
      const float weight = Exp(scores[token - first] - max);
      lanes[(token - tile) % kLanes] += weight;
      scaled.push_back(weight * head_.values[token].scale);
    }
    const Words weights = RoundToWords(scaled);
    const float factor = Exp(old_max - max);
    state_ = {max, state_.sum * factor + SumOfLanes(lanes)};
    for (size_t d = 0; d < values_.size(); ++d) {
      int64_t sum = 0;
      for (int token = first; token < last; ++token) {
        sum += int64_t{weights.values[token - first]} * head_.values[token].values[d];
      }
      values_[d] = MultiplyAdd(static_cast<float>(sum), weights.scale, values_[d] * factor);
    }
  }

  void Join(SoftmaxState* all, std::vector<float>* all_values) const {
    const MergeWeights weights = Merge(all, state_, [this](float x) { return Exp(x); });
    for (size_t d = 0; d < values_.size(); ++d) {
      (*all_values)[d] = MultiplyAdd(values_[d], weights.from, (*all_values)[d] * weights.into);
    }
  }

  const Int8Head& head_;
  const Words query_;
  const float query_scale_;
  const bool is_fused_;
  SoftmaxState state_;
  std::vector<float> values_;
};

}  // namespace

std::vector<float> Int8Attend(const std::vector<float>& q, const Int8Head& head, int begin, int end, float scale,
                              bool is_fused) {
  return Attention(q, head, scale, is_fused).Run(begin, end);
}

}  // namespace quire::reference
