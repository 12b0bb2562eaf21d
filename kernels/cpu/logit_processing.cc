// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/logit_processing.h"

#include <algorithm>
#include <limits>

namespace quire::cpu {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

bool HasPenalty(const SamplingRow& row) {
  return row.presence_penalty != 0 || row.frequency_penalty != 0 || row.repetition_penalty != 1;
}

// Extreme parameters must not turn a finite logit into an infinity, so results are clamped to finite values.
float Finite(float x) {
  return std::clamp(x, -kLargest, kLargest);
}

float Penalize(const SamplingRow& row, const TokenCount& count, float score) {
  if (count.prompt_count > 0 || count.output_count > 0) {
    score = score < 0 ? score * row.repetition_penalty : score / row.repetition_penalty;
  }
  score -= row.frequency_penalty * float(count.output_count);
  if (count.output_count > 0) score -= row.presence_penalty;
  return Finite(score);
}

bool IsInVocabulary(int32_t token, int vocab_size) {
  return token >= 0 && token < vocab_size;
}

}  // namespace

bool ChangesLogits(const SamplingRow& row) {
  return row.num_biases > 0 || row.num_allowed > 0 || row.num_masked > 0 || (row.num_counts > 0 && HasPenalty(row));
}

void ApplyBiasAndPenalties(const SamplingRow& row, int vocab_size, float* scores) {
  for (int i = 0; i < row.num_biases; ++i) {
    const auto [token, bias] = row.biases[i];
    if (IsInVocabulary(token, vocab_size)) scores[token] = Finite(scores[token] + bias);
  }
  if (!HasPenalty(row)) return;
  for (int i = 0; i < row.num_counts; ++i) {
    const int32_t token = row.counts[i].token;
    if (IsInVocabulary(token, vocab_size)) scores[token] = Penalize(row, row.counts[i], scores[token]);
  }
}

void ApplyAllowed(const SamplingRow& row, int vocab_size, std::vector<float>* scratch, float* scores) {
  if (row.num_allowed == 0) return;
  scratch->resize(row.num_allowed);
  for (int i = 0; i < row.num_allowed; ++i) {
    const int32_t token = row.allowed[i];
    (*scratch)[i] = IsInVocabulary(token, vocab_size) ? scores[token] : kMinusInfinity;
  }
  std::fill(scores, scores + vocab_size, kMinusInfinity);
  for (int i = 0; i < row.num_allowed; ++i) {
    if (IsInVocabulary(row.allowed[i], vocab_size)) scores[row.allowed[i]] = (*scratch)[i];
  }
}

void ApplyMasked(const SamplingRow& row, int vocab_size, std::vector<float>* scratch, float* scores) {
  scratch->assign(row.num_masked, kMinusInfinity);
  for (int i = 0; i < row.num_masked; ++i) {
    const int32_t token = row.masked[i];
    if (!IsInVocabulary(token, vocab_size)) continue;
    (*scratch)[i] = scores[token];
    scores[token] = kMinusInfinity;
  }
  if (std::any_of(scores, scores + vocab_size, [](float score) { return score > kMinusInfinity; })) return;
  for (int i = row.num_masked - 1; i >= 0; --i) {
    if (IsInVocabulary(row.masked[i], vocab_size)) scores[row.masked[i]] = (*scratch)[i];
  }
}

}  // namespace quire::cpu
