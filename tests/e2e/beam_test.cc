// SPDX-License-Identifier: Apache-2.0

// Beam search through the real programs. It finds what generate of Hugging Face transformers finds (tests/golden/beam).
// Further tests are about stop strings and about what a client sees.

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

struct GoldenCase {
  v1::GenerateRequest request;
  std::vector<float> scores;
  std::vector<std::vector<uint32_t>> tokens;  // [hypotheses][tokens], the best hypothesis first.
};

std::map<std::string, std::vector<GoldenCase>> CasesByModel(const std::string& file) {
  std::ifstream in(SourcePath(absl::StrCat("tests/golden/beam/", file)));
  const nlohmann::json golden = nlohmann::json::parse(in);
  std::map<std::string, std::vector<GoldenCase>> cases;
  for (const nlohmann::json& values : golden["cases"]) {
    std::map<std::string, nlohmann::json> column;
    for (size_t i = 0; i < values.size(); ++i) column[golden["columns"][i]] = values[i];
    GoldenCase c;
    for (uint32_t id : column["prompt"]) c.request.mutable_token_ids()->add_ids(id);
    v1::BeamParams* beam = c.request.mutable_beam();
    beam->set_width(column["width"]);
    beam->set_length_penalty(column["length_penalty"]);
    beam->set_early_stopping(static_cast<v1::EarlyStopping>(column["early_stopping"].get<int>() + 1));
    beam->set_num_return_sequences(column["num_return"]);
    beam->set_num_groups(column["num_groups"]);
    beam->set_diversity_penalty(column["diversity_penalty"]);
    c.request.mutable_stopping()->set_max_tokens(column["max_tokens"]);
    c.request.mutable_stopping()->set_ignore_eos(true);
    for (uint32_t id : column["stop_token_ids"]) c.request.mutable_stopping()->add_stop_token_ids(id);
    for (const nlohmann::json& hypothesis : column["hypotheses"]) {
      c.scores.push_back(hypothesis[0]);
      c.tokens.push_back(hypothesis[1]);
    }
    cases[column["model"]].push_back(std::move(c));
  }
  return cases;
}

void ExpectGolden(const Generations& found, const GoldenCase& c) {
  ASSERT_TRUE(found.status.ok()) << found.status;
  ASSERT_THAT(found.samples, SizeIs(c.tokens.size()));
  uint32_t num_tokens = 0;
  for (size_t i = 0; i < c.tokens.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("hypothesis ", i));
    EXPECT_EQ(found.samples[i].token_ids, c.tokens[i]);
    EXPECT_NEAR(found.samples[i].last.score(), c.scores[i], 1e-4f * std::max(1.0f, std::abs(c.scores[i])));
    num_tokens += c.tokens[i].size();
  }
  EXPECT_EQ(found.usage.completion_tokens(), num_tokens);
}

// Runs all cases of a model at the same time. Hugging Face's scores were computed with float32 activations.
void RunCases(const std::string& model, const std::vector<GoldenCase>& cases) {
  Cluster cluster({.model = SourcePath(model), .worker_flags = {"--kv-type=float32", "--cpu-kernels=generic"}});
  std::vector<Generations> found(cases.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cases.size(); ++i) {
    threads.emplace_back([&, i] { found[i] = GenerateAll(cluster.client(), cases[i].request); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("case ", i));
    ExpectGolden(found[i], cases[i]);
  }
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

// A test per model, so that the shards of this program share the work.
struct GoldenModel {
  std::string file;
  std::string model;
};

std::vector<GoldenModel> GoldenModels() {
  std::vector<GoldenModel> models;
  for (const char* file : {"models.json", "families.json", "models_groups.json"}) {
    for (const auto& [model, cases] : CasesByModel(file)) models.push_back({file, model});
  }
  return models;
}

class BeamTest : public testing::TestWithParam<GoldenModel> {};

TEST_P(BeamTest, FindsWhatHuggingFaceFinds) {
  RunCases(GetParam().model, CasesByModel(GetParam().file).at(GetParam().model));
}

INSTANTIATE_TEST_SUITE_P(Golden, BeamTest, testing::ValuesIn(GoldenModels()),
                         [](const testing::TestParamInfo<GoldenModel>& info) {
                           const size_t slash = info.param.model.rfind('/');
                           return absl::StrCat(info.param.file == "models_groups.json" ? "groups_" : "",
                                               info.param.model.substr(slash + 1));
                         });

class BeamStreamTest : public testing::Test {
 protected:
  BeamStreamTest() {
    request_.set_text("Once upon a time there was a ");
    request_.mutable_beam()->set_width(4);
    request_.mutable_beam()->set_num_return_sequences(4);
    request_.mutable_stopping()->set_max_tokens(40);
  }

  Generations Run() { return GenerateAll(SharedCluster().client(), request_); }

  v1::GenerateRequest request_;
};

TEST_F(BeamStreamTest, ScoresFollowFromTheLogprobs) {
  request_.mutable_beam()->set_length_penalty(0.5f);
  request_.set_logprobs(0);
  request_.set_prompt_logprobs(2);
  const Generations found = Run();
  ASSERT_TRUE(found.status.ok()) << found.status;
  ASSERT_THAT(found.samples, SizeIs(4));
  float better = 0;
  for (const Generation& hypothesis : found.samples) {
    ASSERT_EQ(hypothesis.logprobs.size(), hypothesis.token_ids.size());
    double sum = 0;
    for (float logprob : hypothesis.logprobs) sum += logprob;
    const float score = hypothesis.last.score();
    EXPECT_NEAR(score, sum / std::sqrt(hypothesis.token_ids.size()), 1e-4);
    EXPECT_LE(score, better);
    better = score;
  }
  EXPECT_THAT(found.samples[0].prompt_logprobs, SizeIs(found.usage.prompt_tokens()));
  EXPECT_THAT(found.samples[1].prompt_logprobs, SizeIs(0));
}

TEST_F(BeamStreamTest, StopStringsEndHypothesesAndLeaveNoText) {
  request_.mutable_stopping()->add_stop(" the");
  const Generations found = Run();
  ASSERT_TRUE(found.status.ok()) << found.status;
  int num_stopped = 0;
  for (const Generation& hypothesis : found.samples) {
    EXPECT_THAT(hypothesis.text, Not(HasSubstr(" the")));
    if (hypothesis.last.stop().empty()) continue;
    EXPECT_EQ(hypothesis.last.finish_reason(), v1::FINISH_REASON_STOP);
    ++num_stopped;
  }
  EXPECT_GT(num_stopped, 0);

  request_.mutable_stopping()->set_include_stop(true);
  const Generations with_stop = Run();
  for (size_t i = 0; i < found.samples.size(); ++i) {
    EXPECT_EQ(with_stop.samples[i].token_ids, found.samples[i].token_ids);
    if (found.samples[i].last.stop().empty()) continue;
    EXPECT_THAT(with_stop.samples[i].text, EndsWith(" the"));
  }
}

TEST_F(BeamStreamTest, AStopTokenAndTheStringThatItSpellsEndTheSameHypotheses) {
  const absl::StatusOr<v1::TokenizeResponse> tokens = [] {
    v1::TokenizeRequest text;
    text.set_text("there was a dog.");
    return SharedCluster().client().Tokenize(text);
  }();
  ASSERT_TRUE(tokens.ok());
  const uint32_t full_stop = *tokens->token_ids().rbegin();
  request_.mutable_stopping()->set_ignore_eos(true);
  request_.mutable_stopping()->add_stop_token_ids(full_stop);
  const Generations by_token = Run();
  request_.mutable_stopping()->clear_stop_token_ids();
  request_.mutable_stopping()->add_stop(".");
  const Generations by_string = Run();
  ASSERT_TRUE(by_token.status.ok() && by_string.status.ok()) << by_token.status << by_string.status;
  ASSERT_EQ(by_token.samples.size(), by_string.samples.size());
  EXPECT_EQ(by_string.samples[0].last.stop(), ".");
  for (size_t i = 0; i < by_token.samples.size(); ++i) {
    EXPECT_EQ(by_string.samples[i].token_ids, by_token.samples[i].token_ids);
    EXPECT_EQ(by_string.samples[i].text, by_token.samples[i].text);
    EXPECT_EQ(by_string.samples[i].last.score(), by_token.samples[i].last.score());
  }
}

TEST_F(BeamStreamTest, MasksMayLeaveFewerHypothesesThanAskedFor) {
  request_.mutable_sampling()->add_allowed_token_ids(13);
  const Generations found = Run();
  ASSERT_TRUE(found.status.ok()) << found.status;
  ASSERT_THAT(found.samples, SizeIs(1));
  EXPECT_EQ(found.samples[0].token_ids, std::vector<uint32_t>(40, 13));
  EXPECT_EQ(found.usage.completion_tokens(), 40u);
}

TEST_F(BeamStreamTest, MoreBeamsThanRowsAreRefused) {
  Cluster small({.model = BundledModel(), .worker_flags = {"--max-sequences=3"}});
  const absl::Status status = GenerateAll(small.client(), request_).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("beam.width: is 4, the worker runs at most 3 sequences"));
}

}  // namespace
}  // namespace quire
