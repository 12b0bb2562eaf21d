// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

#include "kernels/cpu/logit_processing.h"

namespace quire::cpu {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr int kScanChunk = 64;

// Top-p looks only at the bucket of scores in which the mass is reached. Buckets are 1/32 wide. The first one starts at
// the best score, which is 0; the last one takes all lower scores.
constexpr int kNumBuckets = 1024;

int BucketOf(float score) {
  return int(std::min(-score * 32, float(kNumBuckets - 1)));
}

// Returns the standard deviation of the scores above -inf, of which `max` is the largest.
double StandardDeviation(const float* scores, int vocab_size, float max) {
  // Several sums of distances to `max`, because each addition waits for the one before it.
  constexpr int kSums = 8;
  double sums[kSums] = {}, squares[kSums] = {};
  int counts[kSums] = {};
  const auto add = [&](int k, float score) {
    const bool is_kept = score > kMinusInfinity;
    const double distance = is_kept ? double{score} - max : 0;
    counts[k] += is_kept ? 1 : 0;
    sums[k] += distance;
    squares[k] += distance * distance;
  };
  int i = 0;
  for (; i + kSums <= vocab_size; i += kSums) {
    for (int k = 0; k < kSums; ++k) add(k, scores[i + k]);
  }
  for (; i < vocab_size; ++i) add(0, scores[i]);
  const double count = std::accumulate(counts, counts + kSums, 0);
  const double mean = std::accumulate(sums, sums + kSums, 0.0) / count;
  return std::sqrt(std::max(std::accumulate(squares, squares + kSums, 0.0) / count - mean * mean, 0.0));
}

// Returns the lowest score that top-n-sigma keeps after the scores are scaled: their largest one is 0 then.
float LowestWithinSigmas(const SamplingRow& row, const float* scores, int vocab_size, float max) {
  const double distance = row.top_n_sigma * StandardDeviation(scores, vocab_size, max);
  return std::max(-float(std::min(distance, -double{kLowest})) / row.temperature, kLowest);
}

// The order of candidates: falling score, equal scores by id.
struct Precedes {
  const float* scores;
  bool operator()(int32_t a, int32_t b) const { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; }
};

// Drops the tokens with at least this share of the mass of all, except the least likely one of them. The best score is
// 0. `weights` is overwritten.
void DropTopChoices(const KernelTable& kernels, float share, const std::vector<float>& scores,
                    std::vector<float>* weights, std::vector<int32_t>* tokens) {
  weights->resize(scores.size());
  kernels.exp(scores.data(), int(scores.size()), weights->data());
  double total = 0;
  for (const int32_t token : *tokens) total += double{(*weights)[token]};
  const Precedes precedes{scores.data()};
  int32_t last = -1;
  for (const int32_t token : *tokens) {
    const bool is_choice = double{(*weights)[token]} >= share * total;
    if (is_choice && (last < 0 || precedes(last, token))) last = token;
  }
  if (last >= 0) std::erase_if(*tokens, [&](int32_t token) { return precedes(token, last); });
}

}  // namespace

CpuSampler::CpuSampler(const KernelTable* kernels, ThreadPool* pool)
    : kernels_(kernels), pool_(pool), scratch_(pool->num_threads()) {}

void CpuSampler::Run(const SamplingArgs& args) {
  pool_->ForEach(args.num_rows, [&](int row, int thread) { RunRow(args, row, &scratch_[thread]); });
}

void CpuSampler::RunRow(const SamplingArgs& args, int index, Scratch* scratch) {
  const SamplingRow& row = args.rows[index];
  const int vocab_size = args.vocab_size;
  const int logit_row = args.logit_rows == nullptr ? index : args.logit_rows[index];
  const float* logits = args.logits + int64_t{logit_row} * vocab_size;
  SamplingResult* result = &args.results[index];
  ScoredCandidate* top = args.top + int64_t{index} * args.max_top;
  *result = {.token = -1, .logprob = 0, .rank = 0};
  std::fill(top, top + args.max_top, ScoredCandidate{.token = -1, .logprob = 0});

  const RowExtremes extremes = kernels_->extremes(logits, vocab_size);
  if (!extremes.is_finite) return;
  if (row.num_candidates > 0) {
    const int count = ListCandidates(row, logits, vocab_size, extremes.max, top, scratch);
    result->token = count > 0 ? top[0].token : 0;
    return;
  }
  if (row.given_token >= 0) {
    result->token = row.given_token;
  } else if (row.temperature == 0 && !ChangesLogits(row)) {
    result->token = extremes.argmax;
  } else {
    result->token = Draw(row, logits, vocab_size, scratch);
  }
  if (row.num_top < 0 && row.given_token < 0) return;

  const double log_sum = std::log(kernels_->sum_exp(logits, vocab_size, extremes.max));
  const auto logprob = [&](int32_t token) { return float(double(logits[token]) - extremes.max - log_sum); };
  result->logprob = logprob(result->token);
  result->rank = kernels_->rank(logits, vocab_size, result->token);
  const int num_top = std::min({row.num_top, args.max_top, vocab_size});
  if (num_top <= 0) return;
  ListTop(logits, vocab_size, num_top, scratch);
  for (int i = 0; i < num_top; ++i) top[i] = {scratch->tokens[i], logprob(scratch->tokens[i])};
}

int32_t CpuSampler::Draw(const SamplingRow& row, const float* logits, int vocab_size, Scratch* scratch) {
  scratch->scores.assign(logits, logits + vocab_size);
  float* scores = scratch->scores.data();
  ApplyBiasAndPenalties(row, vocab_size, scores);
  ApplyAllowed(row, vocab_size, &scratch->kept, scores);
  if (row.num_masked > 0) ApplyMasked(row, vocab_size, &scratch->kept, scores);
  const RowExtremes best = kernels_->extremes(scores, vocab_size);
  if (row.temperature == 0 || best.max == kMinusInfinity) return best.argmax;

  const float lowest = row.top_n_sigma > 0 ? LowestWithinSigmas(row, scores, vocab_size, best.max) : kLowest;
  kernels_->scale_scores(scores, vocab_size, best.max, row.temperature, scores);
  if (lowest > kLowest) {
    std::replace_if(
        scores, scores + vocab_size, [lowest](float score) { return score < lowest; }, kMinusInfinity);
  }
  const bool has_top_k = row.top_k > 0 && row.top_k < vocab_size;
  if (has_top_k) SelectTop(scores, vocab_size, row.top_k, scratch);
  if (row.top_p < 1) KeepTopP(row, vocab_size, has_top_k, scratch);
  if (has_top_k || row.top_p < 1) return DrawFromCandidates(row, vocab_size, scratch);
  if (row.min_p > 0 || ExcludesTopChoices(row)) {
    const float threshold = row.min_p > 0 ? std::log(row.min_p) : kLowest;
    scratch->tokens.resize(vocab_size);
    scratch->tokens.resize(kernels_->collect(scores, vocab_size, threshold, scratch->tokens.data()));
    return DrawFromCandidates(row, vocab_size, scratch);
  }
  return Gumbel(row, scratch->scores, nullptr, best.argmax);
}

int CpuSampler::ListCandidates(const SamplingRow& row, const float* logits, int vocab_size, float max,
                               ScoredCandidate* top, Scratch* scratch) {
  std::vector<float>& scores = scratch->scores;
  scores.resize(vocab_size);
  // The log of the sum is split into two floats so that it keeps its digits.
  const double log_sum = max + std::log(kernels_->sum_exp(logits, vocab_size, max));
  const float high = float(log_sum);
  kernels_->subtract(logits, vocab_size, high, float(log_sum - high), scores.data());
  ApplyBiasAndPenalties(row, vocab_size, scores.data());
  ApplyAllowed(row, vocab_size, &scratch->kept, scores.data());
  if (row.num_masked > 0) ApplyMasked(row, vocab_size, &scratch->kept, scores.data());
  ListTop(scores.data(), vocab_size, std::min(row.num_candidates, vocab_size), scratch);
  const std::vector<int32_t>& tokens = scratch->tokens;
  for (size_t i = 0; i < tokens.size(); ++i) top[i] = {tokens[i], scores[tokens[i]]};
  return int(tokens.size());
}

// A token stays while the mass of the tokens before it is below top_p of the mass of all candidates.
void CpuSampler::KeepTopP(const SamplingRow& row, int vocab_size, bool has_candidates, Scratch* scratch) {
  const float* scores = scratch->scores.data();
  scratch->weights.resize(vocab_size);
  kernels_->exp(scores, vocab_size, scratch->weights.data());
  std::vector<int32_t>& tokens = scratch->tokens;
  const auto weight = [&](int32_t token) { return double{scratch->weights[token]}; };
  if (has_candidates) {
    double total = 0;
    for (int32_t token : tokens) total += weight(token);
    return scratch->best.Keep(scores, row.top_p * total, weight, &tokens);
  }

  std::vector<double>& masses = scratch->masses;
  masses.assign(kNumBuckets, 0);
  for (int i = 0; i < vocab_size; ++i) {
    if (scores[i] > kMinusInfinity) masses[BucketOf(scores[i])] += scratch->weights[i];
  }
  double total = 0, before = 0;
  for (double mass : masses) total += mass;
  const double limit = row.top_p * total;
  int last = 0;  // The bucket in which the limit is reached.
  while (last + 1 < kNumBuckets && before + masses[last] < limit) before += masses[last++];

  // The scores of the buckets 0 .. last are exactly those above -(last + 1) / 32.
  const float bound = last + 1 < kNumBuckets ? std::nextafter(float(last + 1) / -32, 0.0f) : kLowest;
  tokens.resize(vocab_size);
  tokens.resize(kernels_->collect(scores, vocab_size, bound, tokens.data()));
  const auto is_certain = [&](int32_t token) { return BucketOf(scores[token]) < last; };
  std::vector<int32_t>& certain = scratch->certain;
  certain.clear();
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(certain), is_certain);
  std::erase_if(tokens, is_certain);
  scratch->best.Keep(scores, limit - before, weight, &tokens);
  tokens.insert(tokens.end(), certain.begin(), certain.end());
}

// A few candidates are drawn from a list. For many candidates it is faster to pass over the whole vocabulary, in which
// the other tokens are -inf. The noise of a token is the same either way.
int32_t CpuSampler::DrawFromCandidates(const SamplingRow& row, int vocab_size, Scratch* scratch) {
  std::vector<int32_t>& tokens = scratch->tokens;
  const float* scores = scratch->scores.data();
  if (row.min_p > 0) {
    const float threshold = std::log(row.min_p);
    std::erase_if(tokens, [&](int32_t token) { return scores[token] < threshold; });
  }
  if (ExcludesTopChoices(row)) {
    DropTopChoices(*kernels_, row.xtc_threshold, scratch->scores, &scratch->weights, &tokens);
  }
  const int32_t best = *std::min_element(tokens.begin(), tokens.end(), Precedes{scores});
  std::vector<float>& kept = scratch->kept;
  if (tokens.size() > size_t(vocab_size / 64)) {
    kept.assign(vocab_size, kMinusInfinity);
    for (int32_t token : tokens) kept[token] = scores[token];
    return Gumbel(row, kept, nullptr, best);
  }
  std::sort(tokens.begin(), tokens.end());
  kept.clear();
  for (int32_t token : tokens) kept.push_back(scores[token]);
  const auto best_entry = std::lower_bound(tokens.begin(), tokens.end(), best) - tokens.begin();
  return tokens[Gumbel(row, kept, tokens.data(), int(best_entry))];
}

int CpuSampler::Gumbel(const SamplingRow& row, const std::vector<float>& scores, const int32_t* tokens,
                       int best_score) const {
  return kernels_->gumbel_argmax({.scores = scores.data(),
                                  .tokens = tokens,
                                  .count = int(scores.size()),
                                  .best_score = best_score,
                                  .seed = row.seed,
                                  .position = row.position});
}

// The bound is the k-th largest of the maxima of at least k chunks. At least k entries reach it, and seldom many more.
void CpuSampler::SelectTop(const float* x, int vocab_size, int k, Scratch* scratch) {
  const int num_chunks = (vocab_size + kScanChunk - 1) / kScanChunk;
  float bound = kMinusInfinity;
  if (k <= num_chunks) {
    std::vector<float>& maxima = scratch->chunk_max;
    maxima.resize(num_chunks);
    kernels_->chunk_max(x, vocab_size, maxima.data());
    std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<float>());
    bound = maxima[k - 1];
  }
  std::vector<int32_t>& tokens = scratch->tokens;
  tokens.resize(vocab_size);
  tokens.resize(kernels_->collect(x, vocab_size, std::max(bound, kLowest), tokens.data()));
  if (tokens.size() <= size_t(k)) return;
  scratch->best.Keep(
      x, k, [](int32_t /*token*/) { return 1.0; }, &tokens);
}

void CpuSampler::ListTop(const float* x, int vocab_size, int k, Scratch* scratch) {
  SelectTop(x, vocab_size, k, scratch);
  std::sort(scratch->tokens.begin(), scratch->tokens.end(), Precedes{x});
}

}  // namespace quire::cpu
