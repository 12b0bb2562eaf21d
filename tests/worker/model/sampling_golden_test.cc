// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"
#include "worker/model/backend_buffer.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr int kDraws = 20000;
constexpr int kRowsPerCall = 1000;

// A row of masks.json: logits, sampling parameters, and the tokens that Hugging Face's logits processors, llama.cpp's
// top-n-sigma and the XTC of mlx-lm keep.
struct GoldenRow {
  std::vector<float> logits;
  std::vector<TokenCount> counts;
  SamplingRow parameters{};
  std::map<int32_t, double> probabilities;  // Of the kept tokens.
};

GoldenRow ReadRow(const json& golden) {
  GoldenRow row;
  row.logits = golden["logits"].get<std::vector<float>>();
  for (const int32_t token : golden["seen"].get<std::set<int32_t>>()) row.counts.push_back({token, 1, 0});
  row.parameters.temperature = golden.value("temperature", 1.0f);
  row.parameters.top_n_sigma = golden.value("top_n_sigma", 0.0f);
  row.parameters.top_k = golden.value("top_k", 0);
  row.parameters.top_p = golden.value("top_p", 1.0f);
  row.parameters.min_p = golden.value("min_p", 0.0f);
  row.parameters.xtc_probability = golden.contains("xtc_threshold") ? 1 : 0;
  row.parameters.xtc_threshold = golden.value("xtc_threshold", 0.0f);
  row.parameters.repetition_penalty = golden.value("repetition_penalty", 1.0f);
  row.parameters.num_top = -1;
  row.parameters.given_token = -1;
  for (size_t i = 0; i < golden["kept"].size(); ++i) {
    row.probabilities[golden["kept"][i].get<int32_t>()] = golden["probabilities"][i].get<double>();
  }
  return row;
}

// Counts how often each token was drawn.
std::map<int32_t, int> Draw(Backend* backend, const GoldenRow& row) {
  std::vector<float> logits;
  for (int i = 0; i < kRowsPerCall; ++i) logits.insert(logits.end(), row.logits.begin(), row.logits.end());
  const auto device_logits = BackendBuffer::Allocate(backend, logits.size() * sizeof(float), "logits");
  backend->CopyToDevice(device_logits->get(), logits.data(), logits.size() * sizeof(float));
  std::vector<SamplingRow> rows(kRowsPerCall, row.parameters);
  std::vector<SamplingResult> results(kRowsPerCall);
  std::map<int32_t, int> drawn;
  for (int first = 0; first < kDraws; first += kRowsPerCall) {
    for (int i = 0; i < kRowsPerCall; ++i) {
      rows[i].seed = static_cast<uint64_t>(first + i);
      rows[i].counts = row.counts.data();
      rows[i].num_counts = static_cast<int>(row.counts.size());
    }
    SamplingArgs args{};
    args.logits = device_logits->floats();
    args.num_rows = kRowsPerCall;
    args.vocab_size = static_cast<int>(row.logits.size());
    args.rows = rows.data();
    args.results = results.data();
    backend->Sample(args);
    for (const SamplingResult& result : results) ++drawn[result.token];
  }
  return drawn;
}

TEST(SamplingGoldenTest, TokensAreDrawnFromTheSetAndWithTheChancesOfTransformers) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  const json cases = json::parse(ReadWholeFile(GoldenModel("../sampling/masks.json")));
  ASSERT_EQ(cases.size(), 42u);
  for (const json& golden : cases) {
    const GoldenRow row = ReadRow(golden);
    json parameters = golden;
    for (const char* key : {"logits", "seen", "kept", "probabilities"}) parameters.erase(key);
    const std::map<int32_t, int> drawn = Draw(backend.get(), row);
    for (const auto& [token, count] : drawn) {
      EXPECT_TRUE(row.probabilities.contains(token)) << parameters << " must not keep token " << token;
    }
    for (const auto& [token, chance] : row.probabilities) {
      const auto found = drawn.find(token);
      const double share = found == drawn.end() ? 0 : static_cast<double>(found->second) / kDraws;
      const double deviation = std::sqrt(chance * (1 - chance) / kDraws);
      EXPECT_NEAR(share, chance, 5 * deviation + 1e-4) << parameters << " token " << token;
    }
  }
}

TEST(SamplingGoldenTest, TemperatureZeroTakesTheMostLikelyOfTransformers) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  for (const json& golden : json::parse(ReadWholeFile(GoldenModel("../sampling/masks.json")))) {
    GoldenRow row = ReadRow(golden);
    if (row.parameters.xtc_probability > 0) continue;  // It drops the likeliest token.
    row.parameters.temperature = 0;
    const std::map<int32_t, int> drawn = Draw(backend.get(), row);
    ASSERT_EQ(drawn.size(), 1u);
    for (const auto& [token, chance] : row.probabilities) {
      EXPECT_LE(chance, row.probabilities[drawn.begin()->first]);
    }
  }
}

}  // namespace
}  // namespace quire
