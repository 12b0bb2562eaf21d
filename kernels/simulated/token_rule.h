// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMULATED_TOKEN_RULE_H_
#define QUIRE_KERNELS_SIMULATED_TOKEN_RULE_H_

#include <array>
#include <cstdint>
#include <vector>

namespace quire::simulated {

// A simulated device computes this instead of a model. The slot of every token keeps a hash of the whole prefix up to
// this token, and the logits after a token depend on the hashes in all slots of its context. So one wrong, stale or
// missing block, and one lost, doubled or changed token, changes all logits that follow:
//   sum(-1) = 0
//   slot(p) = Hash(sum(p - 1), token(p), p)
//   sum(p)  = slot(0) * 1 + slot(1) * 3 + ... + slot(p) * (2 p + 1)   modulo 2^64
//   the logits after position p are a function of sum(p)
// The factors make the order of the blocks count.

// Returns what the slot of `token` keeps. `sum` is the value of the position before it.
uint64_t SlotHash(uint64_t sum, int32_t token, int position);

// Returns the sum after a position from the sum before it.
inline uint64_t AddSlot(uint64_t sum, uint64_t slot_hash, int position) {
  return sum + slot_hash * (2 * static_cast<uint64_t>(position) + 1);
}

// Returns the sum after the last one of these tokens, computed without blocks.
uint64_t SumOf(const std::vector<int32_t>& tokens);

// Returns the hidden state after a position with this sum: two numbers in -1 .. 1, both halves of a hash of the sum.
std::array<float, 2> EmbeddingOf(uint64_t sum);

// Turns sums into logits. kNumCandidates tokens that the hash draws have logits from 20 down to 15, each about 0.3
// below the one before. All other tokens have logits from -12 to -11. An end token is never drawn by chance: its logit
// is -28. But if `mean_output_tokens` is not 0, the best token is an end token after one position in
// `mean_output_tokens`, which the hash draws; then the outputs have this length on average.
class TokenRule {
 public:
  static constexpr int kNumCandidates = 16;
  // The smallest vocabulary. At least half of it must be no end tokens.
  static constexpr int kMinVocabulary = 2 * kNumCandidates;

  // REQUIRES: vocab_size >= kMinVocabulary, at most half of the vocabulary are end tokens, mean_output_tokens >= 0.
  // `end_tokens` are in the vocabulary and ascend.
  TokenRule(int vocab_size, std::vector<int32_t> end_tokens, int mean_output_tokens = 0);

  int vocab_size() const { return vocab_size_; }
  int mean_output_tokens() const { return mean_output_tokens_; }
  bool IsEndToken(int32_t token) const;

  // Returns the token with the largest logit. It is the only one with this logit.
  int32_t BestToken(uint64_t sum) const;
  // Writes all logits [vocab_size].
  void FillLogits(uint64_t sum, float* logits) const;

 private:
  struct Candidates {
    int32_t tokens[kNumCandidates];  // Different tokens. The first one is no end token.
  };

  // Returns whether an end token is the best token.
  bool Ends(uint64_t hash) const;
  int32_t FirstCandidate(uint64_t hash) const;
  Candidates Draw(uint64_t hash) const;

  const int vocab_size_;
  const std::vector<int32_t> end_tokens_;
  const int mean_output_tokens_;
};

}  // namespace quire::simulated

#endif  // QUIRE_KERNELS_SIMULATED_TOKEN_RULE_H_
