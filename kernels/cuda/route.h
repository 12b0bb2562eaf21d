// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ROUTE_H_
#define QUIRE_KERNELS_CUDA_ROUTE_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/vector8.h"
#include "kernels/experts.h"

namespace quire::cuda {

constexpr int kMostExperts = 512;
constexpr int kMostExpertGroups = simt::kWarpSize;

// The arrays of Operations::Route, all in device memory.
struct RouteKernelArgs {
  RouterRule rule;           // At most kMostExperts experts in at most kMostExpertGroups groups.
  const float* logits;       // [num_tokens, num_logits]
  const float* choice_bias;  // [num_experts] or null.
  int32_t* experts;          // [num_tokens, top_k], rising.
  float* weights;            // [num_tokens, top_k]
  float* shared_weights;     // [num_tokens] or null.
  int32_t num_tokens;
  int32_t num_logits;
};

// A warp chooses the experts of a token. A lane has the experts whose number is its own modulo 32.
class RouteKernel {
 public:
  using Args = RouteKernelArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;
  static constexpr int kTokensPerBlock = kThreads / simt::kWarpSize;

  static QUIRE_DEVICE void Run(const RouteKernelArgs& args) {
    simt::WaitForPriorGrid();
    for (int token = simt::BlockIndex() * kTokensPerBlock + simt::WarpIndex(); token < args.num_tokens;
         token += simt::GridSize() * kTokensPerBlock) {
      RunToken(args, token);
    }
    simt::TriggerNextGrid();
  }

 private:
  static constexpr int kLaneExperts = kMostExperts / simt::kWarpSize;

  static QUIRE_DEVICE int Expert(int i) { return i * simt::kWarpSize + simt::LaneIndex(); }

  static QUIRE_DEVICE void RunToken(const RouteKernelArgs& args, int token) {
    const RouterRule& rule = args.rule;
    const float* const logits = args.logits + int64_t{token} * args.num_logits;
    float scores[kLaneExperts];
    Score(rule, logits, scores);
    uint32_t keys[kLaneExperts];  // 0 for experts that cannot be chosen, or do not exist.
    QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) {
      keys[i] = 0;
      if (Expert(i) >= rule.num_experts) continue;
      const float bias = args.choice_bias == nullptr ? 0 : simt::LoadReadOnly(args.choice_bias + Expert(i));
      keys[i] = Key(scores[i] + bias);
    }
    if (rule.num_groups > 1) CloseGroups(rule, keys);
    uint32_t chosen = 0;  // Bit i is expert i of the lane.
    for (int k = 0; k < rule.top_k; ++k) chosen |= ChooseOne(keys);
    Store(args, token, scores, chosen);
    if (args.shared_weights != nullptr && simt::LaneIndex() == 0) {
      simt::StoreGlobal(args.shared_weights + token, Sigmoid(simt::LoadGlobal(logits + rule.num_experts)));
    }
  }

  static QUIRE_DEVICE float Exp(float x) { return simt::Exp2(x * 1.44269504f); }
  static QUIRE_DEVICE float Sigmoid(float x) { return simt::Reciprocal(1 + Exp(-x)); }

  static QUIRE_DEVICE void Score(const RouterRule& rule, const float* logits, float (&scores)[kLaneExperts]) {
    float largest = -INFINITY, sum = 0;
    QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) {
      scores[i] = Expert(i) < rule.num_experts ? simt::LoadGlobal(logits + Expert(i)) : -INFINITY;
      largest = fmaxf(largest, scores[i]);
    }
    largest = WarpMax(largest);
    QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) {
      if (rule.score == RouterScore::kSigmoid) {
        scores[i] = Sigmoid(scores[i]);
      } else if (Expert(i) < rule.num_experts) {
        scores[i] = Exp(scores[i] - largest);
        sum += scores[i];
      }
    }
    if (rule.score == RouterScore::kSigmoid) return;
    sum = WarpSum(sum);
    QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) scores[i] /= sum;
  }

  // Returns a number that is in the order of the scores, and above 0. NaN comes last.
  static QUIRE_DEVICE uint32_t Key(float score) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof(bits));
    if (score != score) return 1;
    return bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
  }
  static QUIRE_DEVICE float ScoreOf(uint32_t key) {
    const uint32_t bits = key ^ ((key & 0x80000000u) != 0 ? 0x80000000u : 0xffffffffu);
    float score;
    memcpy(&score, &bits, sizeof(score));
    return score;
  }

  static QUIRE_DEVICE uint32_t WarpLargest(uint32_t x) {
    QUIRE_UNROLL for (int mask = simt::kWarpSize / 2; mask > 0; mask /= 2) {
      const uint32_t other = simt::ShuffleXor(x, mask);
      if (other > x) x = other;
    }
    return x;
  }

  // Leaves only the experts of the best groups to be chosen.
  static QUIRE_DEVICE void CloseGroups(const RouterRule& rule, uint32_t (&keys)[kLaneExperts]) {
    const int size = rule.num_experts / rule.num_groups;
    uint32_t group_key = 0;  // Of the group with the lane's number.
    for (int group = 0; group < rule.num_groups; ++group) {
      float best = -INFINITY, second = -INFINITY;
      QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) {
        if (keys[i] != 0 && Expert(i) / size == group) AddToBest(ScoreOf(keys[i]), -INFINITY, &best, &second);
      }
      QUIRE_UNROLL for (int mask = simt::kWarpSize / 2; mask > 0; mask /= 2) {
        const float other = simt::ShuffleXor(best, mask), other_second = simt::ShuffleXor(second, mask);
        AddToBest(other, other_second, &best, &second);
      }
      if (simt::LaneIndex() == group) group_key = Key(size > 1 ? best + second : best);
    }
    uint32_t open = 0;
    for (int k = 0; k < rule.top_groups; ++k) {
      const uint32_t lanes = simt::Ballot(group_key == WarpLargest(group_key));
      const uint32_t first = lanes & (0 - lanes);
      open |= first;
      if ((first >> simt::LaneIndex() & 1) != 0) group_key = 0;
    }
    QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) {
      if (keys[i] != 0 && (open >> (Expert(i) / size) & 1) == 0) keys[i] = 0;
    }
  }

  // Makes the best two of two pairs, each in its order.
  static QUIRE_DEVICE void AddToBest(float other, float other_second, float* best, float* second) {
    const float lower = fminf(*best, other);
    *best = fmaxf(*best, other);
    *second = fmaxf(lower, fmaxf(*second, other_second));
  }

  // Chooses the expert with the largest key, and of equal ones the first. Returns its bit in its lane, and 0 in others.
  static QUIRE_DEVICE uint32_t ChooseOne(uint32_t (&keys)[kLaneExperts]) {
    uint32_t largest = 0;
    QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) {
      if (keys[i] > largest) largest = keys[i];
    }
    const uint32_t best = WarpLargest(largest);
    uint32_t reversed = 0;  // Of the lane's first expert with the largest key, so that the largest is the first.
    QUIRE_UNROLL for (int i = kLaneExperts - 1; i >= 0; --i) {
      if (keys[i] == best) reversed = uint32_t(kMostExperts - Expert(i));
    }
    const int first = kMostExperts - int(WarpLargest(reversed));
    uint32_t bit = 0;
    QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) {
      if (Expert(i) != first) continue;
      keys[i] = 0;
      bit = 1u << i;
    }
    return bit;
  }

  static QUIRE_DEVICE void Store(const RouteKernelArgs& args, int token, const float (&scores)[kLaneExperts],
                                 uint32_t chosen) {
    const RouterRule& rule = args.rule;
    float factor = rule.scale;
    if (rule.normalizes) {
      float sum = 0;
      QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) sum += (chosen >> i & 1) != 0 ? scores[i] : 0;
      factor /= fmaxf(WarpSum(sum) + rule.added_to_sum, rule.least_sum);
    }
    int before = token * rule.top_k;  // The place of the next chosen expert.
    QUIRE_UNROLL for (int i = 0; i < kLaneExperts; ++i) {
      const bool is_chosen = (chosen >> i & 1) != 0;
      const uint32_t lanes = simt::Ballot(is_chosen);
      if (is_chosen) {
        const int place = before + simt::CountBits(lanes & ((1u << simt::LaneIndex()) - 1));
        simt::StoreGlobal(args.experts + place, Expert(i));
        simt::StoreGlobal(args.weights + place, scores[i] * factor);
      }
      before += simt::CountBits(lanes);
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ROUTE_H_
