// SPDX-License-Identifier: Apache-2.0

#include "kernels/simulated/token_rule.h"

#include <algorithm>
#include <utility>

namespace quire::simulated {
namespace {

constexpr float kBestLogit = 20;
constexpr float kLogitStep = 0.3f;
constexpr float kLogitNoise = 0.25f;  // Less than a step, so that candidates keep their order.
constexpr float kOtherLogit = -12;
constexpr float kEndLogit = -28;

// The finalizer of splitmix64: every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Returns a number in [0, 1) from the lower 24 bits.
float Fraction(uint32_t bits) {
  return static_cast<float>(bits & 0xffffff) * 0x1p-24f;
}

// The finalizer of MurmurHash3, for numbers of 32 bits.
uint32_t Mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6b;
  x = (x ^ (x >> 13)) * 0xc2b2ae35;
  return x ^ (x >> 16);
}

}  // namespace

uint64_t SlotHash(uint64_t sum, int32_t token, int position) {
  return Mix(sum ^ Mix(static_cast<uint64_t>(position) << 32 | static_cast<uint32_t>(token)));
}

std::array<float, 2> EmbeddingOf(uint64_t sum) {
  const uint64_t hash = Mix(sum);
  const auto value = [](uint64_t bits) { return 2 * Fraction(static_cast<uint32_t>(bits)) - 1; };
  return {value(hash), value(hash >> 32)};
}

uint64_t SumOf(const std::vector<int32_t>& tokens) {
  uint64_t sum = 0;
  for (int position = 0; position < static_cast<int>(tokens.size()); ++position) {
    sum = AddSlot(sum, SlotHash(sum, tokens[position], position), position);
  }
  return sum;
}

TokenRule::TokenRule(int vocab_size, std::vector<int32_t> end_tokens, int mean_output_tokens)
    : vocab_size_(vocab_size), end_tokens_(std::move(end_tokens)), mean_output_tokens_(mean_output_tokens) {}

bool TokenRule::IsEndToken(int32_t token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

bool TokenRule::Ends(uint64_t hash) const {
  if (mean_output_tokens_ == 0 || end_tokens_.empty()) return false;
  return Mix(~hash) % static_cast<uint64_t>(mean_output_tokens_) == 0;
}

int32_t TokenRule::FirstCandidate(uint64_t hash) const {
  int32_t token = static_cast<int32_t>((hash >> 32) % static_cast<uint64_t>(vocab_size_));
  while (IsEndToken(token)) token = (token + 1) % vocab_size_;
  return token;
}

// The candidates have equal distances, which are small enough that no two are the same token.
TokenRule::Candidates TokenRule::Draw(uint64_t hash) const {
  Candidates candidates;
  const int distance = 1 + static_cast<int>((hash & 0xffffffff) % static_cast<uint64_t>(vocab_size_ / kNumCandidates));
  int32_t token = FirstCandidate(hash);
  for (int32_t& candidate : candidates.tokens) {
    candidate = token;
    token = (token + distance) % vocab_size_;
  }
  return candidates;
}

int32_t TokenRule::BestToken(uint64_t sum) const {
  const uint64_t hash = Mix(sum);
  return Ends(hash) ? end_tokens_.front() : FirstCandidate(hash);
}

void TokenRule::FillLogits(uint64_t sum, float* logits) const {
  const uint64_t hash = Mix(sum);
  const uint32_t seed = static_cast<uint32_t>(Mix(hash));
  for (int token = 0; token < vocab_size_; ++token) {
    logits[token] = kOtherLogit + Fraction(Mix32(seed + static_cast<uint32_t>(token)));
  }
  const Candidates candidates = Draw(hash);
  for (int i = 0; i < kNumCandidates; ++i) {
    const float noise = i == 0 ? 0 : kLogitNoise * Fraction(Mix32(seed ^ static_cast<uint32_t>(i)));
    logits[candidates.tokens[i]] = kBestLogit - kLogitStep * static_cast<float>(i) - noise;
  }
  for (const int32_t token : end_tokens_) logits[token] = kEndLogit;
  if (Ends(hash)) logits[end_tokens_.front()] = kBestLogit + kLogitStep;
}

}  // namespace quire::simulated
