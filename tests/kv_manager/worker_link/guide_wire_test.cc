// SPDX-License-Identifier: Apache-2.0

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/worker_link/wire.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

TEST(WireTest, TheVocabularyComesWithTheFirstGuideOfASession) {
  auto vocabulary = std::make_shared<GuideVocabulary>();
  *vocabulary = {.bytes = "abc", .lengths = {0, 1, 2}, .end_tokens = {0}};
  const auto guided = [&](Guide::Kind kind, std::vector<std::string> texts) {
    StepPlan plan;
    plan.starts.push_back({RowId{0}, SequenceId{7}, /*sample_index=*/0, /*prompt_length=*/1, {1}, SamplingParams()});
    plan.starts[0].sampling.guide = std::make_shared<Guide>(Guide{kind, std::move(texts), vocabulary});
    return plan;
  };
  PlanEncoder encoder;
  v1::StepPlan out;
  encoder.Encode(StepPlan{}, &out);
  EXPECT_FALSE(out.has_vocabulary());
  encoder.Encode(guided(Guide::Kind::kRegex, {"a+"}), &out);
  EXPECT_EQ(out.vocabulary().bytes(), "abc");
  EXPECT_THAT(out.vocabulary().lengths(), ElementsAre(0, 1, 2));
  EXPECT_THAT(out.vocabulary().end_token_ids(), ElementsAre(0));
  EXPECT_EQ(out.starts(0).sampling().guided().regex(), "a+");
  encoder.Encode(guided(Guide::Kind::kChoice, {"x", "y"}), &out);
  EXPECT_FALSE(out.has_vocabulary());
  EXPECT_THAT(out.starts(0).sampling().guided().choice().texts(), ElementsAre("x", "y"));
  encoder.Encode(guided(Guide::Kind::kJsonSchema, {"{}"}), &out);
  EXPECT_EQ(out.starts(0).sampling().guided().json_schema(), "{}");
  encoder.Encode(guided(Guide::Kind::kGrammar, {"root ::= \"a\""}), &out);
  EXPECT_EQ(out.starts(0).sampling().guided().grammar(), "root ::= \"a\"");
  encoder.Encode(guided(Guide::Kind::kJsonObject, {}), &out);
  EXPECT_TRUE(out.starts(0).sampling().guided().json_object());
}

}  // namespace
}  // namespace quire
