// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_BEST_TOKENS_H_
#define QUIRE_KERNELS_CPU_BEST_TOKENS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::cpu {

// Finds the best tokens of a row in time that grows with their number only: the parameters of a request may make any
// share of the vocabulary a candidate, and a sort would delay the rows beside it. It reads the bits of the scores from
// the highest to the lowest, a few at a time, and looks closer only at the tokens among which the cut lies.
class BestTokens {
 public:
  // Orders the tokens by falling score; equal scores stay in the order of `tokens`. A token stays while the weights of
  // the tokens before it sum to less than `limit`. `weight` returns the weight of a token. The tokens that stay are in
  // no order, except that equal scores are in the order that they had. REQUIRES: no score is NaN, tokens of equal score
  // are in rising order, and `limit` is above 0 and, apart from rounding, at most the sum of all weights.
  template <typename Weight>
  void Keep(const float* scores, double limit, const Weight& weight, std::vector<int32_t>* tokens) {
    kept_.clear();
    double before = 0;
    for (const Digit digit : {Digit{.shift = 21, .num_bits = 11}, {.shift = 10, .num_bits = 11}, {0, 10}}) {
      if (tokens->size() <= kFewTokens) break;
      sums_.fill(0);
      for (const int32_t token : *tokens) sums_[digit.Of(scores[token])] += weight(token);
      const uint32_t cut = FindCut(digit, limit, &before);
      size_t num_undecided = 0;
      for (const int32_t token : *tokens) {
        const uint32_t value = digit.Of(scores[token]);
        if (value < cut) kept_.push_back(token);
        if (value == cut) (*tokens)[num_undecided++] = token;
      }
      tokens->resize(num_undecided);
    }
    if (tokens->size() <= kFewTokens) {
      std::sort(tokens->begin(), tokens->end(), [&](int32_t a, int32_t b) {  // A stable sort would allocate memory.
        return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
      });
    }
    for (const int32_t token : *tokens) {
      if (before >= limit) break;
      kept_.push_back(token);
      before += weight(token);
    }
    tokens->swap(kept_);
  }

 private:
  static constexpr size_t kFewTokens = 64;  // It is faster to sort them.

  // Some bits of a number that falls as the score rises.
  struct Digit {
    int shift;
    int num_bits;

    uint32_t Of(float score) const {
      const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 is equal to 0.
      const uint32_t falling = (bits >> 31) != 0 ? bits : ~(bits | 0x8000'0000);
      return falling >> shift & ((1u << num_bits) - 1);
    }
  };

  // The value of the digit at which the sum reaches the limit, or else the last one that a token has, as far as
  // rounding allows to tell. Adds the sums of lower values to `before`.
  uint32_t FindCut(Digit digit, double limit, double* before) const {
    uint32_t last = (1u << digit.num_bits) - 1;
    while (last > 0 && sums_[last] == 0) --last;
    uint32_t cut = 0;
    while (cut < last && *before + sums_[cut] < limit) *before += sums_[cut++];
    return cut;
  }

  std::array<double, 2048> sums_;  // The weights of the undecided tokens, by the value of the digit.
  std::vector<int32_t> kept_;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_BEST_TOKENS_H_
