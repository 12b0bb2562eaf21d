// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/sampling_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "kernels/reference/sampling.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/kernels/sampling_rows.h"

namespace quire {

int32_t SampleOne(const SampleFunction& sample, const SamplingRow& row, const std::vector<float>& logits) {
  return sample({row}, logits, 0).results[0].token;
}

std::vector<ScoredCandidate> ListCandidatesOf(const SampleFunction& sample, const SamplingRow& row,
                                              const std::vector<float>& logits) {
  const Sampled sampled = sample({row}, logits, row.num_candidates + 1);
  std::vector<ScoredCandidate> list = sampled.top;
  std::erase_if(list, [](const ScoredCandidate& candidate) { return candidate.token < 0; });
  for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(list[i].token, sampled.top[i].token) << "no gap before the end";
  EXPECT_EQ(sampled.results[0].token, list.empty() ? 0 : list[0].token);
  return list;
}

void CheckGreedy(const SampleFunction& sample) {
  std::vector<float> logits(200, -5.0f);
  logits[150] = logits[37] = logits[199] = 2.5f;
  EXPECT_EQ(SampleOne(sample, GreedyRow(), logits), 37);
  OwnedRow owned;
  owned.row = GreedyRow();
  owned.masked = {37};
  EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 150);
  owned.allowed = {3, 37, 90};
  EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 3);
  owned.biases = {{90, 0.5f}};
  EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 90);
}

void CheckTopNSigma(const SampleFunction& sample) {
  // The mean is 3 and the standard deviation 2, so two of them reach from 6 down to 2.
  const std::vector<float> logits = {6, 2, 2, 0, 5, 5, 3, 1};
  using Tokens = std::set<int32_t>;
  const auto drawn = [&](OwnedRow owned, float top_n_sigma, float offset = 0) {
    constexpr uint32_t kDraws = 40;
    std::vector<float> moved = logits;
    for (float& logit : moved) logit += offset;
    owned.row.top_n_sigma = top_n_sigma;
    std::vector<SamplingRow> rows(kDraws, owned.Get());
    for (uint32_t i = 0; i < kDraws; ++i) rows[i].position = i;
    Tokens tokens;
    for (const SamplingResult& result : sample(rows, moved, 0).results) tokens.insert(result.token);
    return tokens;
  };
  OwnedRow owned;
  owned.row.temperature = 100;  // All tokens that are kept have nearly the same chance.
  EXPECT_EQ(drawn(owned, 0).size(), 8u);
  EXPECT_EQ(drawn(owned, 3e38f).size(), 8u);
  for (const float offset : {0.0f, -100.0f, 1000.0f}) {
    EXPECT_EQ(drawn(owned, 2, offset), (Tokens{0, 1, 2, 4, 5, 6})) << "2 is at the limit";
    EXPECT_EQ(drawn(owned, 1.9f, offset), (Tokens{0, 4, 5, 6}));
    EXPECT_EQ(drawn(owned, 0.25f, offset), Tokens{0});
  }
  owned.row.temperature = 4000;
  EXPECT_EQ(drawn(owned, 2), (Tokens{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(drawn(owned, 1.9f), (Tokens{0, 4, 5, 6}));
  owned.row.top_k = 4;
  EXPECT_EQ(drawn(owned, 2), (Tokens{0, 4, 5, 6}));
  EXPECT_EQ(drawn(owned, 1), (Tokens{0, 4, 5}));
  owned.row.top_p = 0.6f;
  EXPECT_EQ(drawn(owned, 1), (Tokens{0, 4})) << "two of three chances";
  owned.row.top_k = 0;
  EXPECT_EQ(drawn(owned, 1), (Tokens{0, 4}));
  owned.row.top_p = 1;
  owned.allowed = {1, 3};
  EXPECT_EQ(drawn(owned, 2), (Tokens{1, 3})) << "2 and 0 have the standard deviation 1";
  EXPECT_EQ(drawn(owned, 1.9f), Tokens{1}) << "the others do not count";
  owned.biases = {{1, -1.5f}};
  EXPECT_EQ(drawn(owned, 1.9f), Tokens{1}) << "the logit with the bias counts";
}

void CheckXtc(const SampleFunction& sample) {
  std::vector<float> logits;
  for (const float mass : {8, 1, 4, 4, 2, 1}) logits.push_back(std::log(mass) - 3);  // Of 20.
  using Tokens = std::set<int32_t>;
  const auto drawn = [&](OwnedRow owned, float threshold, float probability = 1) {
    constexpr uint32_t kDraws = 50;
    owned.row.xtc_probability = probability;
    owned.row.xtc_threshold = threshold;
    std::vector<SamplingRow> rows(kDraws, owned.Get());
    for (uint32_t i = 0; i < kDraws; ++i) rows[i].position = i;
    Tokens tokens;
    for (const SamplingResult& result : sample(rows, logits, 0).results) tokens.insert(result.token);
    return tokens;
  };
  OwnedRow owned;
  EXPECT_EQ(drawn(owned, 0.15f, 0), (Tokens{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(drawn(owned, 0.15f, 0.5f), (Tokens{0, 1, 2, 3, 4, 5})) << "half of the draws have all tokens";
  EXPECT_EQ(drawn(owned, 0.15f), (Tokens{1, 3, 4, 5})) << "3 is less likely than 2, which has the same logit";
  EXPECT_EQ(drawn(owned, 0.09f), (Tokens{1, 4, 5}));
  EXPECT_EQ(drawn(owned, 0.04f), Tokens{5});
  EXPECT_EQ(drawn(owned, 0), Tokens{5});
  for (const float threshold : {0.3f, 0.5f, 1.0f}) {
    EXPECT_EQ(drawn(owned, threshold), (Tokens{0, 1, 2, 3, 4, 5})) << "fewer than two tokens have " << threshold;
  }
  owned.row.min_p = 0.3f;
  EXPECT_EQ(drawn(owned, 0.24f), Tokens{3}) << "the masses are 8, 4 and 4 of 16";
  EXPECT_EQ(drawn(owned, 0.26f), (Tokens{0, 2, 3}));
  owned.row.min_p = 0;
  owned.row.top_k = 2;
  EXPECT_EQ(drawn(owned, 0.32f), Tokens{2}) << "8 and 4 of 12";
  EXPECT_EQ(drawn(owned, 0.35f), (Tokens{0, 2}));
  owned.row.min_p = 0.6f;
  EXPECT_EQ(drawn(owned, 0), Tokens{0});
  owned.row.min_p = 0;
  owned.row.top_k = 0;
  owned.row.top_p = 0.7f;
  EXPECT_EQ(drawn(owned, 0.24f), Tokens{3}) << "8, 4 and 4 of 16";
  owned.row.top_p = 1;
  owned.row.temperature = 1000;
  EXPECT_EQ(drawn(owned, 0.16f), Tokens{5}) << "all have a chance of about 1/6";
  EXPECT_EQ(drawn(owned, 0.17f), (Tokens{0, 1, 2, 3, 4, 5}));
  owned.row.temperature = 1;
  owned.allowed = {1, 0};
  EXPECT_EQ(drawn(owned, 0.1f), Tokens{1}) << "8 and 1 of 9";
  EXPECT_EQ(drawn(owned, 0.12f), (Tokens{0, 1}));
  owned.row.temperature = 0;
  EXPECT_EQ(drawn(owned, 0.1f), Tokens{0}) << "nothing is drawn";
}

void CheckPenalties(const SampleFunction& sample) {
  const std::vector<float> logits = {2.0f, 1.5f, -1.0f};
  OwnedRow owned;
  owned.row = GreedyRow();
  owned.counts = {{0, 1, 0}};  // The token occurs only in the prompt.
  owned.row.repetition_penalty = 2;
  EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 1) << "2 / 2 < 1.5";
  owned.row.repetition_penalty = 1;
  owned.row.frequency_penalty = owned.row.presence_penalty = 1;
  EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 0) << "the prompt does not count";
  owned.counts = {{0, 0, 2}, {1, 0, 1}};
  owned.row.presence_penalty = 0;
  EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 1) << "2 - 2 < 1.5 - 1";
  owned.row.presence_penalty = 2;
  EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 2) << "1.5 - 1 - 2 < -1";
}

void CheckRowsWithNothingLeft(const SampleFunction& sample) {
  const std::vector<float> logits = {1, 3, 2};
  for (const float temperature : {0.0f, 1.0f}) {
    OwnedRow owned;
    owned.row.temperature = temperature;
    owned.allowed = {2};
    owned.masked = {2, 2};
    EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 2);
    owned.allowed = {-1, 3};
    EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 0) << "no allowed token is in the vocabulary";
    owned.row.num_candidates = 2;
    EXPECT_TRUE(ListCandidatesOf(sample, owned.Get(), logits).empty());
  }
  OwnedRow owned;
  owned.row = GreedyRow();
  owned.masked = {0, 1, 2, 99};
  EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 1);
}

void CheckExtremeParameters(const SampleFunction& sample) {
  std::vector<float> logits(500, 0.0f);
  logits[321] = 30;
  for (int i = 0; i < 9; ++i) {
    OwnedRow owned;
    if (i == 0) owned.row.temperature = 1e-30f;
    if (i == 1) owned.row.top_k = 1;
    if (i == 2) owned.row.top_p = 1e-9f;
    if (i == 3) owned.row.min_p = 1;
    if (i == 4) owned.biases = {{321, 3e38f}, {321, 3e38f}};
    if (i == 5) owned.row.repetition_penalty = 1e-38f, owned.counts = {{321, 1, 1}};
    if (i == 6) owned.row.top_n_sigma = 1e-30f;
    if (i == 7) owned.row.top_n_sigma = 3e38f, owned.row.temperature = 1e-5f;
    if (i == 8) owned.row.xtc_probability = 1, owned.row.xtc_threshold = 1;
    EXPECT_EQ(SampleOne(sample, owned.Get(), logits), 321) << "case " << i;
  }
}

void CheckLogprobsRankAndTop(const SampleFunction& sample) {
  Random random(4);
  for (const int vocab_size : {1, 2, 17, 64, 1000, 5003, 32000}) {
    std::vector<float> logits = random.Normals(vocab_size, 3);
    if (vocab_size > 2) logits[vocab_size - 1] = logits[1];
    OwnedRow owned;
    owned.row.temperature = 0.5f;
    owned.row.num_top = std::min(vocab_size, 20);
    owned.masked = {0};
    std::vector<SamplingRow> rows(3, owned.Get());
    rows[1].given_token = vocab_size - 1, rows[1].num_top = 0;
    rows[2].num_top = -1;
    const Sampled sampled = sample(rows, logits, 20);
    const std::vector<double> logprobs = reference::Logprobs(logits);
    const std::vector<int> ranking = reference::Ranking(Doubles(logits));
    for (int i = 0; i < 2; ++i) {
      const SamplingResult& result = sampled.results[i];
      EXPECT_NEAR(result.logprob, logprobs[result.token], 2e-6);
      EXPECT_EQ(ranking[result.rank - 1], result.token);
    }
    EXPECT_EQ(sampled.results[1].token, vocab_size - 1);
    EXPECT_EQ(sampled.results[2].logprob, 0);
    EXPECT_EQ(sampled.results[2].rank, 0);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(sampled.top[i].token, i < rows[0].num_top ? ranking[i] : -1);
      if (i < rows[0].num_top) {
        EXPECT_NEAR(sampled.top[i].logprob, logprobs[ranking[i]], 2e-6);
      }
      EXPECT_EQ(sampled.top[20 + i].token, -1);
    }
  }
}

// The test compares values, because two logprobs may be too close for float32 to distinguish.
void CheckCandidates(const SampleFunction& sample, int num_cases) {
  Random random(6);
  for (int i = 0; i < num_cases; ++i) {
    const int vocab_size = i % 4 == 0 ? random.Int(1, 8) : random.Int(9, 5000);
    const std::vector<float> logits = random.Normals(vocab_size, i % 2 == 0 ? 1.0f : 4.0f);
    OwnedRow owned = RandomRow(vocab_size, &random);
    owned.row.num_candidates = i == 7 ? 3000 : random.Int(1, 300);
    const std::vector<ScoredCandidate> list = ListCandidatesOf(sample, owned.Get(), logits);
    const reference::Candidates expected = reference::ListCandidates(owned.Get(), logits);
    owned.row.num_candidates = vocab_size;
    const reference::Candidates all = reference::ListCandidates(owned.Get(), logits);
    ASSERT_EQ(list.size(), expected.tokens.size()) << "case " << i;
    std::vector<bool> is_listed(vocab_size);
    for (size_t k = 0; k < list.size(); ++k) {
      ASSERT_NEAR(list[k].logprob, expected.logprobs[k], 4e-6) << "case " << i << " entry " << k;
      const auto own = std::find(all.tokens.begin(), all.tokens.end(), list[k].token) - all.tokens.begin();
      ASSERT_NEAR(list[k].logprob, all.logprobs.at(own), 4e-6) << "case " << i << " entry " << k;
      ASSERT_LE(list[k].logprob, list[k > 0 ? k - 1 : 0].logprob) << "case " << i << " entry " << k;
      ASSERT_FALSE(is_listed[list[k].token]) << "case " << i << " twice: " << list[k].token;
      is_listed[list[k].token] = true;
    }
  }
}

// There are few distinct values, so that the end of the list falls among equal values. The list has more than one part.
void CheckCandidatesAmongEqualLogprobs(const SampleFunction& sample, int num_cases) {
  Random random(7);
  for (int i = 0; i < num_cases; ++i) {
    std::vector<float> logits(i % 10 == 0 ? 6000 : random.Int(2, 2000));
    for (float& logit : logits) logit = float(random.Int(0, 2));
    OwnedRow owned;
    owned.row.num_candidates = i == 10 ? 5000 : random.Int(1, int(logits.size()));
    if (i % 2 == 0) owned.masked = RandomTokens(int(logits.size()), 50, &random);
    if (i % 5 == 3) owned.allowed = RandomTokens(int(logits.size()), 50, &random);
    std::vector<int> tokens;
    for (const ScoredCandidate& candidate : ListCandidatesOf(sample, owned.Get(), logits))
      tokens.push_back(candidate.token);
    ASSERT_EQ(tokens, reference::ListCandidates(owned.Get(), logits).tokens) << "case " << i;
  }
}

// Worked by hand on the log softmax: two tokens have probability 1/4 and one has 1/2.
void CheckPenaltiesOfCandidates(const SampleFunction& sample) {
  const float quarter = std::log(0.25f), half = std::log(0.5f);
  const std::vector<float> logits = {7, 7 + std::log(2.0f), 7};
  OwnedRow owned;
  owned.row.num_candidates = 3;
  owned.row.repetition_penalty = 3;
  owned.counts = {{1, 1, 0}};
  std::vector<ScoredCandidate> list = ListCandidatesOf(sample, owned.Get(), logits);
  EXPECT_EQ(list[0].token, 0);
  EXPECT_EQ(list[2].token, 1);
  EXPECT_NEAR(list[0].logprob, quarter, 1e-6);
  EXPECT_NEAR(list[2].logprob, 3 * half, 1e-6) << "although the logit is above 0";
  owned.biases = {{1, 2 - half}};
  list = ListCandidatesOf(sample, owned.Get(), logits);
  EXPECT_NEAR(list[0].logprob, 2.0f / 3, 1e-6) << "a bias comes first and may take it above 0";
  owned.biases.clear();
  owned.row.repetition_penalty = 1;
  owned.row.frequency_penalty = 0.25f;
  owned.row.presence_penalty = 0.5f;
  owned.counts = {{2, 1, 2}};
  owned.masked = {0};
  list = ListCandidatesOf(sample, owned.Get(), logits);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_NEAR(list[0].logprob, half, 1e-6);
  EXPECT_NEAR(list[1].logprob, quarter - 2 * 0.25f - 0.5f, 1e-6);
}

void CheckExtremeLogits(const SampleFunction& sample) {
  SamplingRow row = PlainRow();
  row.num_candidates = 3;
  const std::vector<ScoredCandidate> list = ListCandidatesOf(sample, row, {3e38f, -3e38f, 0});
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].logprob, 0);
  for (const ScoredCandidate& candidate : list) EXPECT_TRUE(std::isfinite(candidate.logprob));
}

void CheckInfiniteOrNanLogits(const SampleFunction& sample) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int at : {0, 77, 98}) {
      std::vector<float> logits(99, 1.0f);
      logits[at] = bad;
      std::vector<SamplingRow> rows(5, PlainRow());
      rows[1].temperature = 0;
      rows[2].given_token = 5;
      rows[3].num_top = 2;
      rows[4].num_candidates = 2;
      const Sampled sampled = sample(rows, logits, 2);
      for (const SamplingResult& result : sampled.results) {
        EXPECT_EQ(result.token, -1);
        EXPECT_EQ(result.rank, 0);
      }
      for (const ScoredCandidate& candidate : sampled.top) EXPECT_EQ(candidate.token, -1);
    }
  }
}

void CheckDrawsDependOnTheirOwnRow(const SampleFunction& together, const SampleFunction& alone, int num_rows) {
  Random random(5);
  const std::vector<float> logits = random.Normals(3000, 2);
  std::vector<OwnedRow> owned;
  for (int i = 0; i < num_rows; ++i) owned.push_back(RandomRow(3000, &random));
  std::vector<SamplingRow> rows;
  for (const OwnedRow& row : owned) rows.push_back(row.Get());
  for (SamplingRow& row : rows) row.num_top = 3;
  const Sampled all = together(rows, logits, 5);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sampled one = alone({rows[i]}, logits, 5);
    EXPECT_EQ(0, memcmp(&all.results[i], one.results.data(), sizeof(SamplingResult))) << i;
    EXPECT_EQ(0, memcmp(&all.top[5 * i], one.top.data(), 5 * sizeof(ScoredCandidate))) << i;
  }
}

}  // namespace quire
