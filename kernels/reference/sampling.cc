// SPDX-License-Identifier: Apache-2.0

#include "kernels/reference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace quire::reference {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

std::vector<double> Penalized(const SamplingRow& row, std::vector<double> scores) {
  for (int i = 0; i < row.num_biases; ++i) scores[row.biases[i].token] += row.biases[i].bias;
  for (int i = 0; i < row.num_counts; ++i) {
    const TokenCount& count = row.counts[i];
    double& score = scores[count.token];
    if (count.prompt_count + count.output_count > 0) {
      score = score > 0 ? score / row.repetition_penalty : score * row.repetition_penalty;
    }
    score -= double(row.frequency_penalty) * count.output_count;
    score -= count.output_count > 0 ? row.presence_penalty : 0;
  }
  return scores;
}

bool Contains(const int32_t* tokens, int num_tokens, int token) {
  return std::find(tokens, tokens + num_tokens, token) != tokens + num_tokens;
}

std::vector<double> Masked(const SamplingRow& row, std::vector<double> scores) {
  for (size_t i = 0; i < scores.size(); ++i) {
    if (row.num_allowed > 0 && !Contains(row.allowed, row.num_allowed, int(i))) scores[i] = kMinusInfinity;
  }
  std::vector<double> masked = scores;
  for (int i = 0; i < row.num_masked; ++i) masked[row.masked[i]] = kMinusInfinity;
  return *std::max_element(masked.begin(), masked.end()) > kMinusInfinity ? masked : scores;
}

// Of the values above -inf.
double StandardDeviation(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  int count = 0;
  for (const double value : values) {
    if (value > kMinusInfinity) sum += value, ++count;
  }
  for (const double value : values) {
    if (value > kMinusInfinity) squares += (value - sum / count) * (value - sum / count);
  }
  return std::sqrt(squares / count);
}

void DropBelow(double threshold, std::vector<double>* scores) {
  for (double& score : *scores) {
    if (score < threshold) score = kMinusInfinity;
  }
}

std::vector<double> Softmax(const std::vector<double>& scores) {
  const double max = *std::max_element(scores.begin(), scores.end());
  std::vector<double> p(scores.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(scores[i] - max);
  for (double& value : p) value /= sum;
  return p;
}

// `order` has the tokens by falling score.
void DropTopChoices(double threshold, const std::vector<int>& order, std::vector<double>* scores) {
  const std::vector<double> p = Softmax(*scores);
  size_t num_choices = 0;
  while (num_choices < order.size() && p[order[num_choices]] > 0 && p[order[num_choices]] >= threshold) ++num_choices;
  for (size_t i = 0; i + 1 < num_choices; ++i) (*scores)[order[i]] = kMinusInfinity;
}

}  // namespace

std::vector<int> Ranking(const std::vector<double>& values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return values[a] > values[b]; });
  return order;
}

std::vector<double> Probabilities(const SamplingRow& row, const std::vector<float>& logits) {
  std::vector<double> scores = Masked(row, Penalized(row, {logits.begin(), logits.end()}));
  const std::vector<int> order = Ranking(scores);
  if (row.temperature == 0) {
    std::vector<double> p(scores.size(), 0);
    p[order[0]] = 1;
    return p;
  }
  for (double& score : scores) score /= row.temperature;
  if (row.top_n_sigma > 0) DropBelow(scores[order[0]] - row.top_n_sigma * StandardDeviation(scores), &scores);
  for (size_t i = row.top_k > 0 ? row.top_k : order.size(); i < order.size(); ++i) scores[order[i]] = kMinusInfinity;

  std::vector<double> p = Softmax(scores);
  double before = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && before >= row.top_p) scores[order[i]] = kMinusInfinity;
    before += p[order[i]];
  }
  for (int token : order) {
    if (p[token] < row.min_p * p[order[0]]) scores[token] = kMinusInfinity;
  }
  if (ExcludesTopChoices(row)) DropTopChoices(row.xtc_threshold, order, &scores);
  return Softmax(scores);
}

std::vector<double> Logprobs(const std::vector<float>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - max);
  std::vector<double> logprobs(logits.begin(), logits.end());
  for (double& value : logprobs) value -= max + std::log(sum);
  return logprobs;
}

Candidates ListCandidates(const SamplingRow& row, const std::vector<float>& logits) {
  const std::vector<double> scores = Masked(row, Penalized(row, Logprobs(logits)));
  Candidates candidates;
  for (int token : Ranking(scores)) {
    if (int(candidates.tokens.size()) == row.num_candidates || scores[token] == kMinusInfinity) break;
    candidates.tokens.push_back(token);
    candidates.logprobs.push_back(scores[token]);
  }
  return candidates;
}

}  // namespace quire::reference
