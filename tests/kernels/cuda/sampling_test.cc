// Sampling on the device, compared with the reference that sorts, and with the CPU backend token for token.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/sampler.h"
#include "kernels/cuda/score.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/sampling_rows.h"

namespace quire::cuda {
namespace {

struct Sampled {
  std::vector<SamplingResult> results;
  std::vector<ScoredCandidate> top;
};

class CudaSamplingTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (device() == nullptr) return;
    sampler_ = std::make_unique<Sampler>(device(), device()->FindKernels(DataType::kBFloat16, 64, 16));
    cpu_ = cpu::MakeCpuBackend(1, cpu::SupportedIsas().back());
  }
  void TearDown() override { sampler_.reset(); }

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
  int32_t SampleOne(const SamplingRow& row, const std::vector<float>& logits) {
    return SampleShared({row}, logits).results[0].token;
  }
  // Returns the list of one row.
  std::vector<ScoredCandidate> List(const SamplingRow& row, const std::vector<float>& logits) {
    const Sampled sampled = SampleShared({row}, logits, row.num_candidates + 1);
    std::vector<ScoredCandidate> list = sampled.top;
    std::erase_if(list, [](const ScoredCandidate& candidate) { return candidate.token < 0; });
    for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(list[i].token, sampled.top[i].token) << "no gap before the end";
    EXPECT_EQ(sampled.results[0].token, list.empty() ? 0 : list[0].token);
    return list;
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

  std::unique_ptr<Sampler> sampler_;
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
    std::vector<OwnedRow> owned(8);
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
    for (size_t i = 0; i < owned.size(); ++i) owned[i].row.position = uint32_t(i);
    const std::vector<SamplingRow> rows = RowsOf(owned);
    ExpectTheTokensOfTheCpu(rows, random.Normals(vocab_size, 2));
    if (vocab_size > 32000) continue;
    ExpectTheTokensOfTheCpu(rows, random.Normals(vocab_size, 0.01f));
    ExpectTheTokensOfTheCpu(rows, random.Normals(vocab_size, 8));
    ExpectTheTokensOfTheCpu(rows, std::vector<float>(vocab_size, -3.0f));
  }
}

TEST_F(CudaSamplingTest, GreedyTakesTheLargestAndTheLowestIdAmongEquals) {
  std::vector<float> logits(200, -5.0f);
  logits[150] = logits[37] = logits[199] = 2.5f;
  EXPECT_EQ(SampleOne(GreedyRow(), logits), 37);
  OwnedRow owned;
  owned.row = GreedyRow();
  owned.masked = {37};
  EXPECT_EQ(SampleOne(owned.Get(), logits), 150);
  owned.allowed = {3, 37, 90};
  EXPECT_EQ(SampleOne(owned.Get(), logits), 3);
  owned.biases = {{90, 0.5f}};
  EXPECT_EQ(SampleOne(owned.Get(), logits), 90);
}

TEST_F(CudaSamplingTest, PenaltiesAreThoseOfHuggingFaceAndOpenAi) {
  const std::vector<float> logits = {2.0f, 1.5f, -1.0f};
  OwnedRow owned;
  owned.row = GreedyRow();
  owned.counts = {{0, 1, 0}};  // The token occurs only in the prompt.
  owned.row.repetition_penalty = 2;
  EXPECT_EQ(SampleOne(owned.Get(), logits), 1) << "2 / 2 < 1.5";
  owned.row.repetition_penalty = 1;
  owned.row.frequency_penalty = owned.row.presence_penalty = 1;
  EXPECT_EQ(SampleOne(owned.Get(), logits), 0) << "the prompt does not count";
  owned.counts = {{0, 0, 2}, {1, 0, 1}};
  owned.row.presence_penalty = 0;
  EXPECT_EQ(SampleOne(owned.Get(), logits), 1) << "2 - 2 < 1.5 - 1";
  owned.row.presence_penalty = 2;
  EXPECT_EQ(SampleOne(owned.Get(), logits), 2) << "1.5 - 1 - 2 < -1";
}

TEST_F(CudaSamplingTest, ARowWithNothingLeftIgnoresTheMask) {
  const std::vector<float> logits = {1, 3, 2};
  for (const float temperature : {0.0f, 1.0f}) {
    OwnedRow owned;
    owned.row.temperature = temperature;
    owned.allowed = {2};
    owned.masked = {2, 2};
    EXPECT_EQ(SampleOne(owned.Get(), logits), 2);
    owned.allowed = {-1, 3};
    EXPECT_EQ(SampleOne(owned.Get(), logits), 0) << "no allowed token is in the vocabulary";
    owned.row.num_candidates = 2;
    EXPECT_TRUE(List(owned.Get(), logits).empty());
  }
  OwnedRow owned;
  owned.row = GreedyRow();
  owned.masked = {0, 1, 2, 99};
  EXPECT_EQ(SampleOne(owned.Get(), logits), 1);
}

TEST_F(CudaSamplingTest, ExtremeParametersStillDrawATokenThatIsAllowed) {
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
    EXPECT_EQ(SampleOne(owned.Get(), logits), 321) << "case " << i;
  }
}

TEST_F(CudaSamplingTest, LogprobsRankAndTopAreOfTheRawLogits) {
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
    const Sampled sampled = SampleShared(rows, logits, 20);
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
TEST_F(CudaSamplingTest, CandidatesAreThoseOfTheReference) {
  Random random(6);
  for (int i = 0; i < 30; ++i) {
    const int vocab_size = i % 4 == 0 ? random.Int(1, 8) : random.Int(9, 5000);
    const std::vector<float> logits = random.Normals(vocab_size, i % 2 == 0 ? 1.0f : 4.0f);
    OwnedRow owned = RandomRow(vocab_size, &random);
    owned.row.num_candidates = i == 7 ? 3000 : random.Int(1, 300);
    const std::vector<ScoredCandidate> list = List(owned.Get(), logits);
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
TEST_F(CudaSamplingTest, CandidatesAmongEqualLogprobsAreTheLowestIds) {
  Random random(7);
  for (int i = 0; i < 16; ++i) {
    std::vector<float> logits(i % 10 == 0 ? 6000 : random.Int(2, 2000));
    for (float& logit : logits) logit = float(random.Int(0, 2));
    OwnedRow owned;
    owned.row.num_candidates = i == 10 ? 5000 : random.Int(1, int(logits.size()));
    if (i % 2 == 0) owned.masked = RandomTokens(int(logits.size()), 50, &random);
    if (i % 5 == 3) owned.allowed = RandomTokens(int(logits.size()), 50, &random);
    std::vector<int> tokens;
    for (const ScoredCandidate& candidate : List(owned.Get(), logits)) tokens.push_back(candidate.token);
    ASSERT_EQ(tokens, reference::ListCandidates(owned.Get(), logits).tokens) << "case " << i;
  }
}

// Worked by hand on the log softmax: two tokens have probability 1/4 and one has 1/2.
TEST_F(CudaSamplingTest, PenaltiesOfCandidatesChangeLogprobs) {
  const float quarter = std::log(0.25f), half = std::log(0.5f);
  const std::vector<float> logits = {7, 7 + std::log(2.0f), 7};
  OwnedRow owned;
  owned.row.num_candidates = 3;
  owned.row.repetition_penalty = 3;
  owned.counts = {{1, 1, 0}};
  std::vector<ScoredCandidate> list = List(owned.Get(), logits);
  EXPECT_EQ(list[0].token, 0);
  EXPECT_EQ(list[2].token, 1);
  EXPECT_NEAR(list[0].logprob, quarter, 1e-6);
  EXPECT_NEAR(list[2].logprob, 3 * half, 1e-6) << "although the logit is above 0";
  owned.biases = {{1, 2 - half}};
  list = List(owned.Get(), logits);
  EXPECT_NEAR(list[0].logprob, 2.0f / 3, 1e-6) << "a bias comes first and may take it above 0";
}

TEST_F(CudaSamplingTest, ExtremeLogitsHaveFiniteCandidates) {
  SamplingRow row = PlainRow();
  row.num_candidates = 3;
  const std::vector<ScoredCandidate> list = List(row, {3e38f, -3e38f, 0});
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].logprob, 0);
  for (const ScoredCandidate& candidate : list) EXPECT_TRUE(std::isfinite(candidate.logprob));
}

TEST_F(CudaSamplingTest, InfiniteOrNanLogitsAreReported) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int at : {0, 77, 98}) {
      std::vector<float> logits(99, 1.0f);
      logits[at] = bad;
      std::vector<SamplingRow> rows(5, PlainRow());
      rows[1].temperature = 0;
      rows[2].given_token = 5;
      rows[3].num_top = 2;
      rows[4].num_candidates = 2;
      const Sampled sampled = SampleShared(rows, logits, 2);
      for (const SamplingResult& result : sampled.results) {
        EXPECT_EQ(result.token, -1);
        EXPECT_EQ(result.rank, 0);
      }
      for (const ScoredCandidate& candidate : sampled.top) EXPECT_EQ(candidate.token, -1);
    }
  }
}

TEST_F(CudaSamplingTest, ADrawDependsOnItsOwnRowOnly) {
  Random random(5);
  const std::vector<float> logits = random.Normals(3000, 2);
  std::vector<OwnedRow> owned;
  for (int i = 0; i < 8; ++i) owned.push_back(RandomRow(3000, &random));
  std::vector<SamplingRow> rows = RowsOf(owned);
  for (SamplingRow& row : rows) row.num_top = 3;
  const Sampled together = SampleShared(rows, logits, 5);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sampled alone = SampleShared({rows[i]}, logits, 5);
    EXPECT_EQ(0, memcmp(&together.results[i], alone.results.data(), sizeof(SamplingResult))) << i;
    EXPECT_EQ(0, memcmp(&together.top[5 * i], alone.top.data(), 5 * sizeof(ScoredCandidate))) << i;
  }
}

}  // namespace
}  // namespace quire::cuda
