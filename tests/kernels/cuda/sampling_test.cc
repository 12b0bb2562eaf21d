// SPDX-License-Identifier: Apache-2.0

// Sampling on the device, compared with the reference that sorts, and with the CPU backend token for token.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/sampler.h"
#include "kernels/cuda/score.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/sampling_cases.h"
#include "tests/kernels/sampling_rows.h"

namespace quire::cuda {
namespace {

class CudaSamplingTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (device() == nullptr) return;
    sampler_ = std::make_unique<Sampler>(device(), device()->FindKernels(DataType::kBFloat16, 64, 16));
    cpu_ = cpu::MakeCpuBackend(1, cpu::SupportedIsas().back());
  }
  void TearDown() override {
    sampler_.reset();
    DeviceTest::TearDown();
  }

  // Row i reads the row logit_rows[i] of the logits, or row i if there are no logit_rows.
  Sampled Sample(const std::vector<SamplingRow>& rows, const std::vector<float>& logits, int vocab_size,
                 const std::vector<int32_t>& logit_rows = {}, int max_top = 0) {
    const DeviceArray<float> on_device(device(), logits);
    return Run(rows, on_device.data(), vocab_size, logit_rows, max_top,
               [&](const SamplingArgs& args) { sampler_->Run(args); });
  }
  Sampled SampleOnCpu(const std::vector<SamplingRow>& rows, const std::vector<float>& logits, int vocab_size,
                      const std::vector<int32_t>& logit_rows = {}, int max_top = 0) {
    return Run(rows, logits.data(), vocab_size, logit_rows, max_top,
               [&](const SamplingArgs& args) { cpu_->Sample(args); });
  }
  // All rows read the same logits.
  Sampled SampleShared(const std::vector<SamplingRow>& rows, const std::vector<float>& logits, int max_top = 0) {
    return Sample(rows, logits, int(logits.size()), std::vector<int32_t>(rows.size(), 0), max_top);
  }
  SampleFunction OnDevice() {
    return [this](const std::vector<SamplingRow>& rows, const std::vector<float>& logits, int max_top) {
      return SampleShared(rows, logits, max_top);
    };
  }
  // Samples on both backends and expects the same tokens.
  void ExpectTheTokensOfTheCpu(const std::vector<SamplingRow>& rows, const std::vector<float>& logits) {
    const std::vector<int32_t> logit_rows(rows.size(), 0);
    const Sampled sampled = Sample(rows, logits, int(logits.size()), logit_rows);
    const Sampled expected = SampleOnCpu(rows, logits, int(logits.size()), logit_rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(sampled.results[i].token, expected.results[i].token) << logits.size() << " tokens, row " << i;
    }
  }

  std::unique_ptr<Sampler> sampler_;

 private:
  template <typename Backend>
  Sampled Run(const std::vector<SamplingRow>& rows, const float* logits, int vocab_size,
              const std::vector<int32_t>& logit_rows, int max_top, const Backend& sample) {
    Sampled sampled = {.results = std::vector<SamplingResult>(rows.size()),
                       .top = std::vector<ScoredCandidate>(rows.size() * max_top)};
    sample(SamplingArgs{.logits = logits,
                        .logit_rows = logit_rows.empty() ? nullptr : logit_rows.data(),
                        .num_rows = int(rows.size()),
                        .vocab_size = vocab_size,
                        .rows = rows.data(),
                        .results = sampled.results.data(),
                        .top = max_top > 0 ? sampled.top.data() : nullptr,
                        .max_top = max_top});
    return sampled;
  }

  std::unique_ptr<quire::Backend> cpu_;
};

std::vector<SamplingRow> RowsOf(const std::vector<OwnedRow>& owned) {
  std::vector<SamplingRow> rows;
  for (const OwnedRow& row : owned) rows.push_back(row.Get());
  return rows;
}

TEST(ScoreTest, RankKeysOrderScoresThenLowerIds) {
  const std::vector<float> ascending = {-INFINITY, -kLargestFloat, -1, -1e-38f, -1e-45f, 0, 1e-45f, 1, kLargestFloat};
  for (size_t i = 0; i < ascending.size(); ++i) {
    EXPECT_EQ(ScoreOf(RankKey(ascending[i], 131071)), ascending[i]);
    EXPECT_EQ(TokenOf(RankKey(ascending[i], 131071)), 131071);
    EXPECT_EQ(RankKey(ascending[i], 131071) >= kLowestRankKey, std::isfinite(ascending[i]));
    EXPECT_GT(RankKey(ascending[i], 3), RankKey(ascending[i], 4));
    if (i == 0) continue;
    EXPECT_GT(RankKey(ascending[i], 9), RankKey(ascending[i - 1], 1));
  }
  EXPECT_EQ(RankKey(-0.0f, 3), RankKey(0.0f, 3)) << "one zero";
}

TEST(ScoreTest, NoiseAndLogsAgreeWithFloat64) {
  for (int token = 0; token < 2000; ++token) {
    SamplingRow row = PlainRow();
    row.position = 17;
    const float noise = GumbelNoise(Uniform(DrawWords(row.seed, 17, token).word[token % 4]));
    // u is rounded to float32. This affects small noise, which comes from u close to 1.
    const double rate = std::exp(-Noise(row, token)), rounding = 0x1p-24 / (rate * std::exp(-rate));
    EXPECT_NEAR(noise, Noise(row, token), 2e-6 + rounding) << token;
    const uint64_t mass = (uint64_t{1} << 42) + uint64_t(token) * token * 12'345'678'901;
    EXPECT_NEAR(LogOfMass(mass), std::log(double(mass) * 0x1p-42), 1e-7) << token;
  }
}

TEST_F(CudaSamplingTest, DrawsWhatTheReferenceAndTheCpuDraw) {
  Random random(1);
  for (const int vocab_size : {1, 5, 96, 333, 1000, 1502}) {
    constexpr int kRows = 12, kLogitRows = 5;
    std::vector<float> logits;
    for (int i = 0; i < kLogitRows; ++i) {
      const std::vector<float> row = random.Normals(vocab_size, i % 2 == 0 ? 1.0f : 4.0f);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    std::vector<OwnedRow> owned;
    std::vector<int32_t> logit_rows;
    for (int i = 0; i < kRows; ++i) {
      owned.push_back(RandomRow(vocab_size, &random));
      logit_rows.push_back(random.Int(0, kLogitRows - 1));
    }
    const std::vector<SamplingRow> rows = RowsOf(owned);
    const Sampled sampled = Sample(rows, logits, vocab_size, logit_rows);
    const Sampled on_cpu = SampleOnCpu(rows, logits, vocab_size, logit_rows);
    for (int i = 0; i < kRows; ++i) {
      const auto first = logits.begin() + logit_rows[i] * vocab_size;
      const int32_t token = sampled.results[i].token;
      EXPECT_EQ(token, on_cpu.results[i].token) << vocab_size << " tokens, row " << i;
      EXPECT_EQ(token, ReferenceDraw(rows[i], {first, first + vocab_size})) << vocab_size << " tokens, row " << i;
    }
  }
}

// There are few distinct values, so that every cut falls among equal values.
TEST_F(CudaSamplingTest, CutsAmongEqualLogitsKeepTheLowestIds) {
  Random random(2);
  for (const int vocab_size : {2, 300, 2500}) {
    std::vector<float> logits(vocab_size);
    for (float& logit : logits) logit = float(random.Int(0, 2));
    logits[0] = -0.0f;
    std::vector<SamplingRow> rows;
    for (int i = 0; i < 12; ++i) {
      SamplingRow row = PlainRow();
      row.position = i;
      if (i % 3 != 0) row.top_k = random.Int(1, vocab_size);
      if (i % 2 == 0) row.top_p = 0.03f + 0.1f * float(random.Int(0, 9));
      rows.push_back(row);
    }
    const Sampled sampled = SampleShared(rows, logits);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(sampled.results[i].token, ReferenceDraw(rows[i], logits)) << vocab_size << " tokens, row " << i;
    }
  }
}

// Vocabularies of real models, with every way to select. Few kept tokens, many kept tokens and ties use different code.
TEST_F(CudaSamplingTest, LargeVocabulariesDrawWhatTheCpuDraws) {
  Random random(3);
  for (const int vocab_size : {32000, 50257, 131072}) {
    std::vector<OwnedRow> owned(14);
    owned[1].row = GreedyRow();
    owned[2].row.top_k = 50;
    owned[2].row.top_p = 0.9f;
    owned[3].row.top_p = 0.9f;  // With flat logits, thousands of tokens stay.
    owned[4].row.top_k = 5000;
    owned[4].row.top_p = 0.99f;
    owned[5].row.min_p = 0.2f;
    owned[5].row.temperature = 1.5f;
    owned[6].row.top_p = 0.3f;
    owned[7] = RandomRow(vocab_size, &random);
    owned[8].row.top_n_sigma = 1.5f;
    owned[9].row.top_n_sigma = 2.5f;  // Fewer tokens than top-k keeps.
    owned[9].row.top_k = 5000;
    owned[9].row.top_p = 0.9f;
    owned[10].row.top_n_sigma = 3;  // Thousands of tokens, of which top-p keeps some.
    owned[10].row.top_p = 0.8f;
    owned[11].row.xtc_threshold = 2e-5f;  // With flat logits, all tokens have more.
    owned[12].row.xtc_threshold = 0.001f;
    owned[12].row.top_p = 0.9f;
    owned[13].row.xtc_threshold = 0.02f;
    owned[13].row.top_k = 50;
    owned[13].row.min_p = 0.1f;
    for (size_t i = 0; i < owned.size(); ++i) {
      owned[i].row.position = uint32_t(i);
      owned[i].row.xtc_probability = i > 10 ? 1.0f : owned[i].row.xtc_probability;
    }
    const std::vector<SamplingRow> rows = RowsOf(owned);
    ExpectTheTokensOfTheCpu(rows, random.Normals(vocab_size, 2));
    if (vocab_size > 32000) continue;
    ExpectTheTokensOfTheCpu(rows, random.Normals(vocab_size, 0.01f));
    ExpectTheTokensOfTheCpu(rows, random.Normals(vocab_size, 8));
    ExpectTheTokensOfTheCpu(rows, std::vector<float>(vocab_size, -3.0f));
  }
}

TEST_F(CudaSamplingTest, TopNSigmaKeepsTokensWithinStandardDeviations) {
  CheckTopNSigma(OnDevice());
}

TEST_F(CudaSamplingTest, XtcKeepsTheLeastLikelyTopChoice) {
  CheckXtc(OnDevice());
}

TEST_F(CudaSamplingTest, GreedyTakesTheLargestLogitAndOnATieTheLowestId) {
  CheckGreedy(OnDevice());
}

TEST_F(CudaSamplingTest, PenaltiesAreThoseOfHuggingFaceAndOpenAi) {
  CheckPenalties(OnDevice());
}

// Of two draws, the host knows the token of the first one in one case, and only the device knows it in the other.
TEST_F(CudaSamplingTest, PenaltiesCountATokenThatOnlyTheDeviceKnows) {
  constexpr int kVocabSize = 600, kPlace = 2;
  constexpr int32_t kDrawn = 555;
  sampler_->KeepDrawnTokens(kPlace + 1);
  std::vector<float> first(kVocabSize, 0.0f), logits = Random(5).Normals(kVocabSize);
  first[kDrawn] = 9;
  logits[kDrawn] = 3;
  const std::vector<TokenCount> others = {{3, 1, 0}, {4, 0, 2}, {kVocabSize - 1, 2, 1}};
  for (const TokenCount& before : {TokenCount{kDrawn, 0, 0}, {kDrawn, 2, 0}, {kDrawn, 0, 3}}) {
    SCOPED_TRACE(before.prompt_count + 10 * before.output_count);
    OwnedRow draw;
    draw.row = GreedyRow();
    draw.row.drawn_place = kPlace;
    ASSERT_EQ(Sample({draw.Get()}, first, kVocabSize).results[0].token, kDrawn);
    OwnedRow known;
    known.row.num_candidates = kVocabSize;  // All scores after the penalties.
    known.row.presence_penalty = 0.5f;
    known.row.frequency_penalty = 0.3f;
    known.row.repetition_penalty = 1.7f;
    OwnedRow pending = known;
    known.counts = pending.counts = others;
    if (before.prompt_count + before.output_count > 0) pending.counts.push_back(before);
    known.counts.push_back({kDrawn, before.prompt_count, before.output_count + 1});
    pending.row.pending_place = kPlace;
    const Sampled expected = Sample({known.Get()}, logits, kVocabSize, {}, kVocabSize);
    const Sampled sampled = Sample({pending.Get()}, logits, kVocabSize, {}, kVocabSize);
    for (int i = 0; i < kVocabSize; ++i) {
      ASSERT_EQ(sampled.top[i].token, expected.top[i].token) << i;
      ASSERT_EQ(sampled.top[i].logprob, expected.top[i].logprob) << i;
    }
    // Without penalties the token does not matter.
    pending.row.presence_penalty = pending.row.frequency_penalty = 0;
    pending.row.repetition_penalty = 1;
    EXPECT_EQ(Sample({pending.Get()}, logits, kVocabSize, {}, kVocabSize).top[0].token, kDrawn);
  }
}

TEST_F(CudaSamplingTest, TheMaskIsIgnoredWhenItLeavesNoToken) {
  CheckRowsWithNothingLeft(OnDevice());
}

TEST_F(CudaSamplingTest, ExtremeParametersStillDrawATokenThatIsAllowed) {
  CheckExtremeParameters(OnDevice());
}

TEST_F(CudaSamplingTest, LogprobAndRankAndTopListUseTheRawLogits) {
  CheckLogprobsRankAndTop(OnDevice());
}

TEST_F(CudaSamplingTest, CandidatesAreThoseOfTheReference) {
  CheckCandidates(OnDevice(), 30);
}

TEST_F(CudaSamplingTest, CandidatesAmongEqualLogprobsAreTheLowestIds) {
  CheckCandidatesAmongEqualLogprobs(OnDevice(), 16);
}

TEST_F(CudaSamplingTest, PenaltiesChangeTheLogprobsOfCandidates) {
  CheckPenaltiesOfCandidates(OnDevice());
}

TEST_F(CudaSamplingTest, CandidatesOfExtremeLogitsHaveFiniteLogprobs) {
  CheckExtremeLogits(OnDevice());
}

TEST_F(CudaSamplingTest, InfiniteOrNanLogitsAreReported) {
  CheckInfiniteOrNanLogits(OnDevice());
}

TEST_F(CudaSamplingTest, ADrawDependsOnItsOwnRowOnly) {
  CheckDrawsDependOnTheirOwnRow(OnDevice(), OnDevice(), 8);
}

// Otherwise a request with penalties would let the device forget what it has recorded.
TEST_F(CudaSamplingTest, PenaltiesMoveNothingThatRecordingsUse) {
  constexpr int kVocabSize = 96;
  Random random(6);
  const std::vector<float> logits = random.Normals(kVocabSize, 1.0f);
  SampleShared({PlainRow()}, logits, /*max_top=*/4);
  const int64_t num_frees = device()->num_frees();
  OwnedRow owned;
  owned.row.frequency_penalty = 1;
  for (int token = 0; token < kVocabSize; ++token) {
    owned.counts.push_back({token, 1, 1});
    if (token % 10 == 0) SampleShared({owned.Get()}, logits, /*max_top=*/4);
  }
  EXPECT_EQ(device()->num_frees() - num_frees, 10) << "only the arrays of logits are freed";
}

TEST_F(CudaSamplingTest, SeveralPassesDrawWhatOnePassDraws) {
  constexpr int kVocabSize = 96, kRows = 4, kMaxTop = 3;
  Random random(5);
  const std::vector<float> logits = random.Normals(kRows * kVocabSize, 1.0f);
  std::vector<OwnedRow> owned;
  for (int i = 0; i < kRows; ++i) {
    owned.push_back(RandomRow(kVocabSize, &random));
    owned.back().row.num_top = i % (kMaxTop + 1);
  }
  const std::vector<SamplingRow> rows = RowsOf(owned);
  for (const std::vector<int32_t>& logit_rows : {std::vector<int32_t>{}, {2, 0, 0, 3}}) {
    const Sampled at_once = Sample(rows, logits, kVocabSize, logit_rows, kMaxTop);
    sampler_ = std::make_unique<Sampler>(device(), device()->FindKernels(DataType::kBFloat16, 64, 16), 1);
    const Sampled one_by_one = Sample(rows, logits, kVocabSize, logit_rows, kMaxTop);
    for (int i = 0; i < kRows; ++i) {
      EXPECT_EQ(one_by_one.results[i].token, at_once.results[i].token) << i;
      EXPECT_EQ(one_by_one.results[i].logprob, at_once.results[i].logprob) << i;
      for (int k = 0; k < rows[i].num_top; ++k) {
        EXPECT_EQ(one_by_one.top[i * kMaxTop + k].token, at_once.top[i * kMaxTop + k].token) << i;
      }
    }
  }
}

}  // namespace
}  // namespace quire::cuda
