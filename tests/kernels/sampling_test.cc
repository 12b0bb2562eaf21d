#include <algorithm>
#include <cmath>

#include "kernels/reference/sampling.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/kernels/sampling_rows.h"

namespace quire {
namespace {

using SamplingTest = CpuBackendTest;

struct Sampled {
  std::vector<SamplingResult> results;
  std::vector<ScoredCandidate> top;
};

// Draws once per row, with the same logits for all rows.
Sampled Sample(Backend* backend, const std::vector<SamplingRow>& rows, const std::vector<float>& logits,
               int max_top = 0) {
  std::vector<float> all;
  for (size_t i = 0; i < rows.size(); ++i) all.insert(all.end(), logits.begin(), logits.end());
  Sampled sampled = {.results = std::vector<SamplingResult>(rows.size()),
                     .top = std::vector<ScoredCandidate>(rows.size() * max_top)};
  backend->Sample({.logits = all.data(),
                   .logit_rows = nullptr,
                   .num_rows = int(rows.size()),
                   .vocab_size = int(logits.size()),
                   .rows = rows.data(),
                   .results = sampled.results.data(),
                   .top = max_top > 0 ? sampled.top.data() : nullptr,
                   .max_top = max_top});
  return sampled;
}

int32_t SampleOne(Backend* backend, const SamplingRow& row, const std::vector<float>& logits) {
  return Sample(backend, {row}, logits).results[0].token;
}

TEST_P(SamplingTest, DrawsWhatTheReferenceDraws) {
  const auto backend = MakeBackend();
  Random random(1);
  for (int i = 0; i < 400; ++i) {
    const int vocab_size = i % 4 == 0 ? random.Int(1, 8) : random.Int(9, 1500);
    const std::vector<float> logits = random.Normals(vocab_size, i % 2 == 0 ? 1.0f : 4.0f);
    const OwnedRow owned = RandomRow(vocab_size, &random);
    ASSERT_EQ(SampleOne(backend.get(), owned.Get(), logits), ReferenceDraw(owned.Get(), logits)) << "case " << i;
  }
}

// There are few distinct values, so that every cut falls among equal values.
TEST_P(SamplingTest, CutsAmongEqualLogitsKeepTheLowestIds) {
  const auto backend = MakeBackend();
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> logits(random.Int(2, 300));
    for (float& logit : logits) logit = float(random.Int(0, 2));
    SamplingRow row = PlainRow();
    row.position = i;
    row.top_k = random.Int(1, int(logits.size()));
    if (i % 2 == 0) row.top_p = 0.03f + 0.1f * float(random.Int(0, 9));
    ASSERT_EQ(SampleOne(backend.get(), row, logits), ReferenceDraw(row, logits)) << "case " << i;
    row.top_k = 0;
    ASSERT_EQ(SampleOne(backend.get(), row, logits), ReferenceDraw(row, logits)) << "case " << i << " without top-k";
  }
}

// Returns Pearson's statistic of draws against expected probabilities, over tokens that are expected at least 5 times.
double ChiSquare(const std::vector<SamplingResult>& results, const std::vector<double>& p, int* degrees) {
  std::vector<double> counts(p.size(), 0);
  for (const SamplingResult& result : results) ++counts[result.token];
  double statistic = 0, rest_count = 0, rest_expected = 0;
  *degrees = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * double(results.size());
    EXPECT_TRUE(p[i] > 0 || counts[i] == 0) << "token " << i << " cannot be drawn";
    if (expected < 5) {
      rest_count += counts[i], rest_expected += expected;
      continue;
    }
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++*degrees;
  }
  if (rest_expected > 0) statistic += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
  if (rest_expected == 0) --*degrees;
  return statistic;
}

TEST_P(SamplingTest, ManyDrawsFollowTheDistribution) {
  const auto backend = MakeBackend();
  Random random(3);
  for (int config = 0; config < 6; ++config) {
    const int vocab_size = 70;
    const std::vector<float> logits = random.Normals(vocab_size, 1);
    SamplingRow row = PlainRow();
    row.temperature = config % 2 == 0 ? 1.0f : 0.8f;
    if (config == 2) row.top_k = 12;
    if (config == 3) row.top_p = 0.8f;
    if (config == 4) row.min_p = 0.05f;
    std::vector<SamplingRow> rows(20'000, row);
    // Different positions and different seeds both give independent draws.
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].position = config % 2 == 1 ? 7 : uint32_t(i);
      if (config % 2 == 1) rows[i].seed = i;
    }
    int degrees;
    const double statistic =
        ChiSquare(Sample(backend.get(), rows, logits).results, reference::Probabilities(row, logits), &degrees);
    // The statistic has mean `degrees` and variance 2 * degrees. The limit is five standard deviations above the mean.
    EXPECT_LT(statistic, degrees + 5 * std::sqrt(2.0 * degrees)) << "configuration " << config;
    EXPECT_GT(degrees, 5);
  }
}

TEST_P(SamplingTest, GreedyTakesTheLargestAndTheLowestIdAmongEquals) {
  const auto backend = MakeBackend();
  std::vector<float> logits(200, -5.0f);
  logits[150] = logits[37] = logits[199] = 2.5f;
  EXPECT_EQ(SampleOne(backend.get(), GreedyRow(), logits), 37);
  OwnedRow owned;
  owned.row = GreedyRow();
  owned.masked = {37};
  EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 150);
  owned.allowed = {3, 37, 90};
  EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 3);
  owned.biases = {{90, 0.5f}};
  EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 90);
}

TEST_P(SamplingTest, PenaltiesAreThoseOfHuggingFaceAndOpenAi) {
  const auto backend = MakeBackend();
  const std::vector<float> logits = {2.0f, 1.5f, -1.0f};
  OwnedRow owned;
  owned.row = GreedyRow();
  owned.counts = {{0, 1, 0}};  // The token occurs only in the prompt.
  owned.row.repetition_penalty = 2;
  EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 1) << "2 / 2 < 1.5";
  owned.row.repetition_penalty = 1;
  owned.row.frequency_penalty = owned.row.presence_penalty = 1;
  EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 0) << "the prompt does not count";
  owned.counts = {{0, 0, 2}, {1, 0, 1}};
  owned.row.presence_penalty = 0;
  EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 1) << "2 - 2 < 1.5 - 1";
  owned.row.presence_penalty = 2;
  EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 2) << "1.5 - 1 - 2 < -1";
}

TEST_P(SamplingTest, ARowWithNothingLeftIgnoresTheMask) {
  const auto backend = MakeBackend();
  const std::vector<float> logits = {1, 3, 2};
  for (const float temperature : {0.0f, 1.0f}) {
    OwnedRow owned;
    owned.row.temperature = temperature;
    owned.allowed = {2};
    owned.masked = {2, 2};
    EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 2);
    owned.allowed = {-1, 3};
    EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 0) << "no allowed token is in the vocabulary";
  }
  OwnedRow owned;
  owned.row = GreedyRow();
  owned.masked = {0, 1, 2, 99};
  EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 1);
}

TEST_P(SamplingTest, ExtremeParametersStillDrawATokenThatIsAllowed) {
  const auto backend = MakeBackend();
  std::vector<float> logits(500, 0.0f);
  logits[321] = 30;
  for (int i = 0; i < 6; ++i) {
    OwnedRow owned;
    if (i == 0) owned.row.temperature = 1e-30f;
    if (i == 1) owned.row.top_k = 1;
    if (i == 2) owned.row.top_p = 1e-9f;
    if (i == 3) owned.row.min_p = 1;
    if (i == 4) owned.biases = {{321, 3e38f}, {321, 3e38f}};
    if (i == 5) owned.row.repetition_penalty = 1e-38f, owned.counts = {{321, 1, 1}};
    EXPECT_EQ(SampleOne(backend.get(), owned.Get(), logits), 321) << "case " << i;
  }
}

TEST_P(SamplingTest, LogprobsRankAndTopAreOfTheRawLogits) {
  const auto backend = MakeBackend();
  Random random(4);
  for (const int vocab_size : {1, 2, 17, 64, 1000, 5003}) {
    std::vector<float> logits = random.Normals(vocab_size, 3);
    if (vocab_size > 2) logits[vocab_size - 1] = logits[1];
    OwnedRow owned;
    owned.row.temperature = 0.5f;
    owned.row.num_top = std::min(vocab_size, 20);
    owned.masked = {0};
    std::vector<SamplingRow> rows(3, owned.Get());
    rows[1].given_token = vocab_size - 1, rows[1].num_top = 0;
    rows[2].num_top = -1;
    const Sampled sampled = Sample(backend.get(), rows, logits, 20);
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

// Returns the list of one row.
std::vector<ScoredCandidate> List(Backend* backend, const SamplingRow& row, const std::vector<float>& logits) {
  const Sampled sampled = Sample(backend, {row}, logits, row.num_candidates + 1);
  std::vector<ScoredCandidate> list = sampled.top;
  std::erase_if(list, [](const ScoredCandidate& candidate) { return candidate.token < 0; });
  for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(list[i].token, sampled.top[i].token) << "no gap before the end";
  EXPECT_EQ(sampled.results[0].token, list.empty() ? 0 : list[0].token);
  return list;
}

// The test compares values, because two logprobs may be too close for float32 to distinguish.
TEST_P(SamplingTest, CandidatesAreThoseOfTheReference) {
  const auto backend = MakeBackend();
  Random random(6);
  for (int i = 0; i < 400; ++i) {
    const int vocab_size = i % 4 == 0 ? random.Int(1, 8) : random.Int(9, 5000);
    const std::vector<float> logits = random.Normals(vocab_size, i % 2 == 0 ? 1.0f : 4.0f);
    OwnedRow owned = RandomRow(vocab_size, &random);
    owned.row.num_candidates = random.Int(1, 300);
    const std::vector<ScoredCandidate> list = List(backend.get(), owned.Get(), logits);
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

// There are few distinct values, so that the end of the list falls among equal values.
TEST_P(SamplingTest, CandidatesAmongEqualLogprobsAreTheLowestIds) {
  const auto backend = MakeBackend();
  Random random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> logits(random.Int(2, 2000));
    for (float& logit : logits) logit = float(random.Int(0, 2));
    OwnedRow owned;
    owned.row.num_candidates = random.Int(1, int(logits.size()));
    if (i % 2 == 0) owned.masked = RandomTokens(int(logits.size()), 50, &random);
    if (i % 5 == 0) owned.allowed = RandomTokens(int(logits.size()), 50, &random);
    std::vector<int> tokens;
    for (const ScoredCandidate& candidate : List(backend.get(), owned.Get(), logits)) tokens.push_back(candidate.token);
    ASSERT_EQ(tokens, reference::ListCandidates(owned.Get(), logits).tokens) << "case " << i;
  }
}

// Worked by hand on the log softmax: two tokens have probability 1/4 and one has 1/2.
TEST_P(SamplingTest, PenaltiesOfCandidatesChangeLogprobs) {
  const auto backend = MakeBackend();
  const float quarter = std::log(0.25f), half = std::log(0.5f);
  const std::vector<float> logits = {7, 7 + std::log(2.0f), 7};
  OwnedRow owned;
  owned.row.num_candidates = 3;
  owned.row.repetition_penalty = 3;
  owned.counts = {{1, 1, 0}};
  std::vector<ScoredCandidate> list = List(backend.get(), owned.Get(), logits);
  EXPECT_EQ(list[0].token, 0);
  EXPECT_EQ(list[2].token, 1);
  EXPECT_NEAR(list[0].logprob, quarter, 1e-6);
  EXPECT_NEAR(list[2].logprob, 3 * half, 1e-6) << "although the logit is above 0";
  owned.biases = {{1, 2 - half}};
  list = List(backend.get(), owned.Get(), logits);
  EXPECT_NEAR(list[0].logprob, 2.0f / 3, 1e-6) << "a bias comes first and may take it above 0";
  owned.biases.clear();
  owned.row.repetition_penalty = 1;
  owned.row.frequency_penalty = 0.25f;
  owned.row.presence_penalty = 0.5f;
  owned.counts = {{2, 1, 2}};
  owned.masked = {0};
  list = List(backend.get(), owned.Get(), logits);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_NEAR(list[0].logprob, half, 1e-6);
  EXPECT_NEAR(list[1].logprob, quarter - 2 * 0.25f - 0.5f, 1e-6);
}

TEST_P(SamplingTest, ExtremeLogitsHaveFiniteCandidates) {
  const auto backend = MakeBackend();
  SamplingRow row = PlainRow();
  row.num_candidates = 3;
  const std::vector<ScoredCandidate> list = List(backend.get(), row, {3e38f, -3e38f, 0});
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].logprob, 0);
  for (const ScoredCandidate& candidate : list) EXPECT_TRUE(std::isfinite(candidate.logprob));
}

TEST_P(SamplingTest, SeveralRowsMayReadOneRowOfLogits) {
  const auto backend = MakeBackend();
  Random random(8);
  const int vocab_size = 500;
  const std::vector<float> logits = random.Normals(2 * vocab_size, 2);
  std::vector<SamplingRow> rows(4, PlainRow());
  for (int i = 0; i < 4; ++i) rows[i].seed = i;
  const std::vector<int32_t> logit_rows = {1, 0, 1, 1};
  std::vector<SamplingResult> results(4);
  backend->Sample({.logits = logits.data(),
                   .logit_rows = logit_rows.data(),
                   .num_rows = 4,
                   .vocab_size = vocab_size,
                   .rows = rows.data(),
                   .results = results.data(),
                   .top = nullptr,
                   .max_top = 0});
  for (int i = 0; i < 4; ++i) {
    const auto first = logits.begin() + logit_rows[i] * vocab_size;
    EXPECT_EQ(results[i].token, SampleOne(backend.get(), rows[i], std::vector<float>(first, first + vocab_size)));
  }
}

TEST_P(SamplingTest, InfiniteOrNanLogitsAreReported) {
  const auto backend = MakeBackend();
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int at : {0, 77, 99}) {
      std::vector<float> logits(100, 1.0f);
      logits[at] = bad;
      OwnedRow owned;
      std::vector<SamplingRow> rows(5, PlainRow());
      rows[1].temperature = 0;
      rows[2].given_token = 5;
      rows[3].num_top = 2;
      rows[4].num_candidates = 2;
      for (const SamplingResult& result : Sample(backend.get(), rows, logits, 2).results) EXPECT_EQ(result.token, -1);
    }
  }
}

TEST_P(SamplingTest, ADrawDependsOnItsOwnRowOnly) {
  Random random(5);
  const int vocab_size = 3000;
  const std::vector<float> logits = random.Normals(vocab_size, 2);
  std::vector<OwnedRow> owned;
  for (int i = 0; i < 24; ++i) owned.push_back(RandomRow(vocab_size, &random));
  std::vector<SamplingRow> rows;
  for (const OwnedRow& row : owned) rows.push_back(row.Get());
  for (SamplingRow& row : rows) row.num_top = 0;
  const auto one_thread = MakeBackend(1);
  for (const int num_threads : {1, 4}) {
    const Sampled together = Sample(MakeBackend(num_threads).get(), rows, logits);
    for (size_t i = 0; i < rows.size(); ++i) {
      const SamplingResult alone = Sample(one_thread.get(), {rows[i]}, logits).results[0];
      EXPECT_EQ(together.results[i].token, alone.token);
      EXPECT_EQ(together.results[i].logprob, alone.logprob);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, SamplingTest, testing::ValuesIn(cpu::SupportedIsas()), IsaName);

}  // namespace
}  // namespace quire
