// SPDX-License-Identifier: Apache-2.0

// Compares beam search with what Hugging Face transformers found for the same tables of logits, see
// tests/golden/beam/README.md. QUIRE_BEAM_CASES names another file of cases.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "scheduler/beam_search.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

using nlohmann::json;
using Tokens = std::vector<TokenId>;
using ::testing::Ge;

constexpr int kVocabulary = 64;
constexpr float kMasked = -INFINITY;

// One line of a file, keyed by the names of its columns.
struct Case {
  json columns;
  json values;

  const json& at(const std::string& column) const {
    return values.at(std::find(columns.begin(), columns.end(), column) - columns.begin());
  }
  Tokens tokens(const std::string& column) const { return at(column).get<Tokens>(); }
};

// The logits that follow the last two of `tokens`, as table_logits in tools/goldens/beam.py computes them.
std::vector<double> Logits(const Case& c, const Tokens& tokens) {
  const uint32_t pair = static_cast<uint32_t>(tokens[tokens.size() - 2] * kVocabulary + tokens.back());
  std::vector<double> logits(kVocabulary);
  for (uint32_t token = 0; token < kVocabulary; ++token) {
    uint32_t x = token * 0x9E3779B1u + pair * 0x85EBCA77u + c.at("seed").get<uint32_t>();
    for (uint32_t multiplier : {0x7FEB352Du, 0x846CA68Bu}) x = (x ^ (x >> 16)) * multiplier;
    logits[token] = ((x ^ (x >> 15)) >> 12) / 131072.0;
  }
  for (TokenId token : c.tokens("stop_token_ids")) logits[token] += c.at("stop_boost").get<double>() / 8;
  return logits;
}

// The `count` most likely tokens after penalties and masks, which are applied to the logprobs as in transformers.
std::vector<TokenLogprob> Candidates(const Case& c, const Tokens& prompt, const Tokens& generated, int count) {
  Tokens tokens = prompt;
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  const std::vector<double> logits = Logits(c, tokens);
  double sum = 0;
  for (double logit : logits) sum += std::exp(logit);
  std::vector<TokenLogprob> candidates(kVocabulary);
  for (int i = 0; i < kVocabulary; ++i) candidates[i] = {i, static_cast<float>(logits[i] - std::log(sum))};
  for (TokenId token : std::set<TokenId>(tokens.begin(), tokens.end()))
    candidates[token].logprob *= c.at("repetition_penalty").get<float>();
  if (static_cast<int>(generated.size()) < c.at("min_tokens"))
    for (TokenId token : c.tokens("stop_token_ids")) candidates[token].logprob = kMasked;
  std::sort(candidates.begin(), candidates.end(),
            [](const TokenLogprob& a, const TokenLogprob& b) { return a.logprob > b.logprob; });
  candidates.resize(std::min(count, kVocabulary));
  return candidates;
}

// A condition that is met when the last two tokens have a certain sum in modular arithmetic.
class StopSum : public StopCondition {
 public:
  StopSum(int modulus, int remainder) : modulus_(modulus), remainder_(remainder) {}

  int num_tokens_needed() const override { return 2; }
  bool IsMet(absl::Span<const TokenId> last, int) const override {
    return last.size() == 2 && (last[0] + last[1]) % modulus_ == remainder_;
  }

 private:
  int modulus_;
  int remainder_;
};

BeamParams Params(const Case& c) {
  return {.width = c.at("width"),
          .num_return = c.at("num_return"),
          .length_penalty = c.at("length_penalty"),
          .early_stopping = static_cast<EarlyStopping>(c.at("early_stopping").get<int>()),
          .num_groups = c.at("num_groups"),
          .diversity_penalty = c.at("diversity_penalty")};
}

// Whether `tokens` begin with `beginning`.
bool BeginsWith(const Tokens& tokens, const Tokens& beginning) {
  return tokens.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

Tokens CommonBeginning(const std::vector<BeamSearch::Hypothesis>& hypotheses) {
  Tokens common = hypotheses.at(0).tokens;
  for (const BeamSearch::Hypothesis& hypothesis : hypotheses)
    while (!BeginsWith(hypothesis.tokens, common)) common.pop_back();
  return common;
}

// Runs the search to its end and checks on the way that agreed tokens never change.
std::vector<BeamSearch::Hypothesis> Search(const Case& c, BeamSearch* search) {
  const Tokens prompt = c.tokens("prompt");
  std::vector<Tokens> live = {{}};
  Tokens agreed;
  for (int step = 0; !search->is_done(); ++step) {
    std::vector<std::vector<TokenLogprob>> candidates;
    for (const Tokens& generated : live)
      candidates.push_back(Candidates(c, prompt, generated, search->num_candidates()));
    std::vector<Tokens> next;
    for (const BeamSearch::Extension& extension : search->Advance(candidates)) {
      next.push_back(live.at(extension.parent));
      next.back().push_back(extension.token);
    }
    live = std::move(next);
    EXPECT_TRUE(BeginsWith(search->agreed_tokens(), agreed)) << "after step " << step;
    agreed = search->agreed_tokens();
    for (const Tokens& generated : live) EXPECT_TRUE(BeginsWith(generated, agreed)) << "after step " << step;
  }
  EXPECT_EQ(agreed, CommonBeginning(search->Best()));
  return search->Best();
}

FinishReason ExpectedReason(const Case& c, const Tokens& tokens, const StopCondition* condition) {
  const Tokens stops = c.tokens("stop_token_ids");
  const bool is_stop = std::find(stops.begin(), stops.end(), tokens.back()) != stops.end();
  const auto last = absl::MakeConstSpan(tokens).last(std::min<size_t>(tokens.size(), 2));
  const int num_tokens = static_cast<int>(tokens.size());
  if (is_stop || (condition != nullptr && condition->IsMet(last, num_tokens))) return FinishReason::kStopToken;
  EXPECT_EQ(tokens.size(), c.at("max_tokens"));
  return FinishReason::kLength;
}

void ExpectFound(const Case& c) {
  const json& stop_sum = c.at("stop_sum");
  const StopSum sum_condition = stop_sum.empty() ? StopSum(1, 0) : StopSum(stop_sum[0], stop_sum[1]);
  const StopCondition* condition = stop_sum.empty() ? nullptr : &sum_condition;
  BeamSearch search(Params(c), c.at("max_tokens"), c.tokens("stop_token_ids"), condition);
  const std::vector<BeamSearch::Hypothesis> found = Search(c, &search);
  const json& expected = c.at("hypotheses");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const Tokens& tokens = found[i].tokens;
    ASSERT_EQ(tokens, expected[i][1].get<Tokens>()) << "hypothesis " << i;
    const float score = expected[i][0];
    const float tolerance = 1e-4f * std::max(1.0f, std::abs(score));
    EXPECT_NEAR(found[i].score, score, tolerance) << "hypothesis " << i;
    EXPECT_EQ(found[i].reason, ExpectedReason(c, tokens, condition)) << "hypothesis " << i;
    float sum = 0;
    for (float logprob : found[i].logprobs) sum += logprob;
    const double length = std::pow(tokens.size(), c.at("length_penalty").get<double>());
    // The diversity penalty is part of the score but not of the logprobs.
    if (c.at("num_groups") == 1) {
      EXPECT_NEAR(sum / length, score, tolerance) << "hypothesis " << i;
    }
  }
}

void ExpectAllFound(const std::string& path, int min_cases) {
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  const json file = json::parse(in);
  ASSERT_THAT(file.at("cases").size(), Ge(min_cases));
  for (const json& values : file.at("cases")) {
    SCOPED_TRACE(values.dump());
    ExpectFound({file.at("columns"), values});
    if (testing::Test::HasFailure()) return;
  }
}

TEST(BeamSearchGoldenTest, FindsWhatTransformersFinds) {
  const char* other = std::getenv("QUIRE_BEAM_CASES");
  if (other != nullptr) return ExpectAllFound(other, 1);
  ExpectAllFound(SourcePath("tests/golden/beam/recorded.json"), 500);
}

TEST(BeamSearchGoldenTest, FindsWhatTransformersFindsInGroups) {
  ExpectAllFound(SourcePath("tests/golden/beam/recorded_groups.json"), 300);
}

}  // namespace
}  // namespace quire
