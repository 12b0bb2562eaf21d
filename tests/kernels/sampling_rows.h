// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_SAMPLING_ROWS_H_
#define QUIRE_TESTS_KERNELS_SAMPLING_ROWS_H_

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/philox.h"
#include "kernels/reference/sampling.h"
#include "tests/kernels/kernel_test_util.h"

// Sampling rows for the tests of all backends, and their expected draws.

namespace quire {

// Returns a row that draws from the plain softmax, without logprobs.
inline SamplingRow PlainRow() {
  SamplingRow row = {};
  row.temperature = 1;
  row.top_p = 1;
  row.repetition_penalty = 1;
  row.seed = 0x123456789abcdef;
  row.num_top = -1;
  row.given_token = -1;
  return row;
}

inline SamplingRow GreedyRow() {
  SamplingRow row = PlainRow();
  row.temperature = 0;
  return row;
}

// A row and the lists that it points to.
struct OwnedRow {
  SamplingRow row = PlainRow();
  std::vector<TokenCount> counts;
  std::vector<TokenBias> biases;
  std::vector<int32_t> allowed, masked;

  SamplingRow Get() const {
    SamplingRow result = row;
    result.counts = counts.data(), result.num_counts = int(counts.size());
    result.biases = biases.data(), result.num_biases = int(biases.size());
    result.allowed = allowed.data(), result.num_allowed = int(allowed.size());
    result.masked = masked.data(), result.num_masked = int(masked.size());
    return result;
  }
};

inline std::vector<int32_t> RandomTokens(int vocab_size, int max_count, Random* random) {
  std::vector<int32_t> tokens(vocab_size);
  std::iota(tokens.begin(), tokens.end(), 0);
  random->Shuffle(&tokens);
  tokens.resize(random->Int(1, std::min(vocab_size, max_count)));
  return tokens;
}

inline OwnedRow RandomRow(int vocab_size, Random* random) {
  OwnedRow owned;
  SamplingRow& row = owned.row;
  const auto sometimes = [&] { return random->Int(0, 2) == 0; };
  row.temperature = 0.3f + 0.1f * float(random->Int(0, 15));
  row.seed = uint64_t(random->Int(0, 1 << 30)) << 31;
  row.position = random->Int(0, 100'000);
  if (sometimes()) row.top_n_sigma = 0.4f * float(random->Int(1, 8));
  if (sometimes()) row.top_k = random->Int(1, vocab_size + 3);
  if (sometimes()) row.top_p = 0.05f * float(random->Int(1, 19));
  if (sometimes()) row.min_p = 0.02f * float(random->Int(1, 20));
  if (sometimes()) row.presence_penalty = 0.7f;
  if (sometimes()) row.frequency_penalty = -0.3f;
  if (sometimes()) row.repetition_penalty = 1.3f;
  for (const int32_t token : RandomTokens(vocab_size, 30, random)) {
    owned.counts.push_back({token, random->Int(0, 2), random->Int(0, 3)});
  }
  if (sometimes()) {
    for (const int32_t token : RandomTokens(vocab_size, 5, random)) owned.biases.push_back({token, random->Normal()});
  }
  if (sometimes()) owned.allowed = RandomTokens(vocab_size, 50, random);
  if (sometimes()) owned.masked = RandomTokens(vocab_size, 50, random);
  if (sometimes()) row.xtc_probability = 0.7f;
  row.xtc_threshold = 0.013f * float(random->Int(0, 20));
  return owned;
}

// Returns the noise that kernels/sampling.h specifies, in double.
inline double Noise(const SamplingRow& row, int token) {
  const PhiloxBlock block = Philox4x32({{row.position, 0, uint32_t(token) / 4, 0}}, row.seed);
  const double u = (block.word[token % 4] + 0.5) * 0x1p-32;
  return -std::log(-std::log1p(-u));
}

inline int ReferenceDraw(const SamplingRow& row, const std::vector<float>& logits) {
  const std::vector<double> p = reference::Probabilities(row, logits);
  int best = -1;
  double best_score = -INFINITY;
  for (size_t i = 0; i < p.size(); ++i) {
    const double score = p[i] > 0 ? std::log(p[i]) + Noise(row, int(i)) : -INFINITY;
    if (score > best_score) best = int(i), best_score = score;
  }
  return best;
}

}  // namespace quire

#endif  // QUIRE_TESTS_KERNELS_SAMPLING_ROWS_H_
