// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <memory>

#include "kernels/reference/sampling.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/kernels/sampling_cases.h"
#include "tests/kernels/sampling_rows.h"

namespace quire {
namespace {

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

class SamplingTest : public CpuBackendTest {
 protected:
  SampleFunction Sampler(int num_threads = 2) {
    const std::shared_ptr<Backend> backend = MakeBackend(num_threads);
    return [backend](const std::vector<SamplingRow>& rows, const std::vector<float>& logits, int max_top) {
      return Sample(backend.get(), rows, logits, max_top);
    };
  }
};

TEST_P(SamplingTest, DrawsWhatTheReferenceDraws) {
  const SampleFunction sampler = Sampler();
  Random random(1);
  for (int i = 0; i < 400; ++i) {
    const int vocab_size = i % 4 == 0 ? random.Int(1, 8) : random.Int(9, 1500);
    const std::vector<float> logits = random.Normals(vocab_size, i % 2 == 0 ? 1.0f : 4.0f);
    const OwnedRow owned = RandomRow(vocab_size, &random);
    ASSERT_EQ(SampleOne(sampler, owned.Get(), logits), ReferenceDraw(owned.Get(), logits)) << "case " << i;
  }
}

// There are few distinct values, so that nearly every cut falls among equal values.
TEST_P(SamplingTest, CutsAmongEqualLogitsKeepTheLowestIds) {
  const SampleFunction sampler = Sampler();
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> logits(random.Int(2, 300));
    for (float& logit : logits) logit = float(random.Int(0, 2));
    SamplingRow row = PlainRow();
    row.position = i;
    row.top_k = random.Int(1, int(logits.size()));
    if (i % 2 == 0) row.top_p = 0.03f + 0.1f * float(random.Int(0, 9));
    ASSERT_EQ(SampleOne(sampler, row, logits), ReferenceDraw(row, logits)) << "case " << i;
    row.top_k = 0;
    ASSERT_EQ(SampleOne(sampler, row, logits), ReferenceDraw(row, logits)) << "case " << i << " without top-k";
  }
}

// Returns Pearson's statistic of draws against expected probabilities. Every token that is expected at least 5 times is
// a cell of its own, and all rarer tokens together are one more cell.
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
  for (int config = 0; config < 8; ++config) {
    const int vocab_size = 70;
    const std::vector<float> logits = random.Normals(vocab_size, 1);
    SamplingRow row = PlainRow();
    row.temperature = config % 2 == 0 ? 1.0f : 0.8f;
    if (config == 2) row.top_k = 12;
    if (config == 3) row.top_p = 0.8f;
    if (config == 4) row.min_p = 0.05f;
    if (config == 6) row.top_n_sigma = 2;
    if (config == 7) row.xtc_probability = 1, row.xtc_threshold = 0.02f;
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

TEST_P(SamplingTest, TopNSigmaKeepsTokensWithinStandardDeviations) {
  CheckTopNSigma(Sampler());
}

TEST_P(SamplingTest, XtcKeepsTheLeastLikelyTopChoice) {
  CheckXtc(Sampler());
}

TEST(ExcludesTopChoicesTest, TheChanceIsOfTheSeedAndThePosition) {
  constexpr int kDraws = 10'000;
  SamplingRow row = PlainRow();
  row.xtc_probability = 0.3f;
  int by_seed = 0, by_position = 0, both = 0;
  for (int i = 0; i < kDraws; ++i) {
    SamplingRow other = row;
    row.seed = i;
    other.position = i;
    by_seed += ExcludesTopChoices(row) ? 1 : 0;
    by_position += ExcludesTopChoices(other) ? 1 : 0;
    both += ExcludesTopChoices(row) && ExcludesTopChoices(other) ? 1 : 0;
  }
  // Five standard deviations.
  EXPECT_NEAR(by_seed, 3000, 5 * std::sqrt(2100));
  EXPECT_NEAR(by_position, 3000, 5 * std::sqrt(2100));
  EXPECT_NEAR(both, 900, 5 * std::sqrt(819));
  row.xtc_probability = 0;
  EXPECT_FALSE(ExcludesTopChoices(row));
  for (row.xtc_probability = 1, row.position = 0; row.position < 100; ++row.position) {
    EXPECT_TRUE(ExcludesTopChoices(row));
  }
}

TEST_P(SamplingTest, GreedyTakesTheLargestLogitAndOnATieTheLowestId) {
  CheckGreedy(Sampler());
}

TEST_P(SamplingTest, PenaltiesAreThoseOfHuggingFaceAndOpenAi) {
  CheckPenalties(Sampler());
}

TEST_P(SamplingTest, TheMaskIsIgnoredWhenItLeavesNoToken) {
  CheckRowsWithNothingLeft(Sampler());
}

TEST_P(SamplingTest, ExtremeParametersStillDrawATokenThatIsAllowed) {
  CheckExtremeParameters(Sampler());
}

TEST_P(SamplingTest, LogprobAndRankAndTopListUseTheRawLogits) {
  CheckLogprobsRankAndTop(Sampler());
}

TEST_P(SamplingTest, CandidatesAreThoseOfTheReference) {
  CheckCandidates(Sampler(), 400);
}

TEST_P(SamplingTest, CandidatesAmongEqualLogprobsAreTheLowestIds) {
  CheckCandidatesAmongEqualLogprobs(Sampler(), 200);
}

TEST_P(SamplingTest, PenaltiesChangeTheLogprobsOfCandidates) {
  CheckPenaltiesOfCandidates(Sampler());
}

TEST_P(SamplingTest, CandidatesOfExtremeLogitsHaveFiniteLogprobs) {
  CheckExtremeLogits(Sampler());
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
    EXPECT_EQ(results[i].token, SampleOne(Sampler(), rows[i], std::vector<float>(first, first + vocab_size)));
  }
}

TEST_P(SamplingTest, InfiniteOrNanLogitsAreReported) {
  CheckInfiniteOrNanLogits(Sampler());
}

TEST_P(SamplingTest, ADrawDependsOnItsOwnRowOnly) {
  for (const int num_threads : {1, 4}) {
    CheckDrawsDependOnTheirOwnRow(Sampler(num_threads), Sampler(/*num_threads=*/1), 24);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, SamplingTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
