// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/worker/generation.h"
#include "tests/worker/test_worker.h"
#include "worker/row_guide.h"

namespace quire {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenId kEnd = 1;
constexpr TokenId kFirstText = 3;  // Token 3 is a space, token 4 is "!", and so on in the order of ASCII.

std::string BytesOf(TokenId token) {
  return token < kFirstText ? "" : std::string(1, static_cast<char>(' ' + token - kFirstText));
}

std::string TextOf(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += BytesOf(token);
  return text;
}

v1::StepPlan VocabularyPlan(int vocab_size) {
  v1::StepPlan plan;
  plan.set_step(1);
  for (TokenId token = 0; token < vocab_size; ++token) {
    // The test models have few tokens. What they have beyond ASCII stands for nothing.
    const std::string bytes = token < kFirstText + 95 ? BytesOf(token) : "";
    *plan.mutable_vocabulary()->mutable_bytes() += bytes;
    plan.mutable_vocabulary()->add_lengths(static_cast<uint32_t>(bytes.size()));
  }
  plan.mutable_vocabulary()->add_end_token_ids(kEnd);
  return plan;
}

v1::RowSampling Guided(const std::string& regex) {
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(1.5);
  sampling.set_seed(5);
  sampling.mutable_guided()->set_regex(regex);
  return sampling;
}

class GuidedTest : public ::testing::Test {
 protected:
  GuidedTest() {
    worker_.executor().Reset();
    const auto result = worker_.Run(VocabularyPlan(worker_.limits().vocab_size));
    EXPECT_TRUE(result.ok()) << result.status();
  }

  std::vector<TokenId> Draw(const v1::RowSampling& sampling, int num_tokens) {
    return Generate(&worker_, {.prompt = {11, 12, 13}, .sampling = sampling, .num_tokens = num_tokens}).tokens;
  }

  TestWorker worker_;
};

TEST_F(GuidedTest, DrawsFollowTheGuideAndEndWhereItEnds) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    v1::RowSampling sampling = Guided("[A-C]{3}-[0-9]+7");
    sampling.set_seed(seed);
    const std::vector<TokenId> tokens = Draw(sampling, 12);
    const std::string text = TextOf(tokens);
    ASSERT_GE(text.size(), 6u);
    for (size_t i = 0; i < 3; ++i) EXPECT_THAT(std::string("ABC"), HasSubstr(text.substr(i, 1)));
    EXPECT_EQ(text[3], '-');
    EXPECT_EQ(text.find_first_not_of("0123456789", 4), text.npos) << text;
  }
  const std::vector<TokenId> tokens = Draw(Guided("AB"), 4);
  EXPECT_EQ(TextOf(tokens), "AB");
  EXPECT_EQ(tokens[2], kEnd);
}

// Each "a" may begin or end a part, so that the text can be read in more and more ways.
TEST_F(GuidedTest, AGuideThatIsTooExpensiveEndsItsSequenceAlone) {
  v1::RowSampling sampling = Greedy();
  sampling.mutable_guided()->set_grammar(R"~(root ::= s
s ::= t s | t
t ::= "a" | "a" s "a" | u | v
u ::= "a" s t
v ::= "a" u s "a")~");
  sampling.add_allowed_token_ids(static_cast<uint32_t>(kFirstText + 'a' - ' '));
  // Row 0 follows the guide and row 1 follows none.
  worker_.executor().Reset();
  PlanBuilder first(1);
  first.Start(0, {11, 12, 13}, sampling).Slice(0, 0, 3, true, Blocks(0, 32));
  first.Start(1, {11, 12, 13}).Slice(1, 0, 3, true, Blocks(32, 32));
  absl::StatusOr<v1::StepResult> result = worker_.Run(first.plan());
  uint32_t step = 2;
  for (; result.ok() && result->failures().empty() && step < 120; ++step) {
    ASSERT_EQ(result->token_ids_size(), 2) << "step " << step;
    result = worker_.Run(PlanBuilder(step).Slice(0, step + 1, 1, true).Slice(1, step + 1, 1, true).plan());
  }
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->failures_size(), 1) << "after " << step << " steps";
  EXPECT_EQ(result->failures(0).sequence(), 100u);
  EXPECT_EQ(result->failures(0).reason(), v1::SEQUENCE_FAILURE_REASON_GUIDE_TOO_EXPENSIVE);
  EXPECT_EQ(result->token_ids_size(), 1);
}

TEST_F(GuidedTest, OtherMasksHoldAsFarAsTheGuideLeavesTokens) {
  v1::RowSampling sampling = Guided("[A-C]{20}");
  sampling.add_allowed_token_ids(static_cast<uint32_t>(kFirstText + 'B' - ' '));
  sampling.add_allowed_token_ids(static_cast<uint32_t>(kFirstText + 'C' - ' '));
  sampling.add_bad_word_token_ids(static_cast<uint32_t>(kFirstText + 'C' - ' '));
  sampling.add_bad_word_lengths(1);
  EXPECT_EQ(TextOf(Draw(sampling, 8)), "BBBBBBBB");
  sampling.mutable_guided()->set_regex("[D-E]{20}");
  EXPECT_EQ(TextOf(Draw(sampling, 8)).find_first_not_of("DE"), std::string::npos);
}

TEST_F(GuidedTest, ARowThatStartsAgainWithItsTokensDrawsTheSameRest) {
  const v1::RowSampling sampling = Guided("([A-F]-){2,9}[0-9]{4}");
  const std::vector<TokenId> tokens = Draw(sampling, 10);
  for (size_t num_known : {1u, 4u, 9u}) {
    worker_.executor().Reset();
    std::vector<TokenId> known = {11, 12, 13};
    known.insert(known.end(), tokens.begin(), tokens.begin() + static_cast<int>(num_known));
    const auto num_tokens = static_cast<uint32_t>(known.size());
    const auto result = worker_.Run(PlanBuilder(1)
                                        .Start(0, known, sampling, /*prompt_length=*/3)
                                        .Slice(0, 0, num_tokens, true, Blocks(0, 8))
                                        .plan());
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->token_ids(), ElementsAre(static_cast<uint32_t>(tokens[num_known])));
  }
}

TEST_F(GuidedTest, ForksGoTheirOwnWays) {
  worker_.executor().Reset();
  v1::RowSampling sampling = Guided("(AB|CD)*");
  sampling.set_num_candidates(2);
  auto result = worker_.Run(PlanBuilder(1).Start(0, {11, 12, 13}, sampling).Slice(0, 0, 3, true, Blocks(0, 4)).plan());
  ASSERT_TRUE(result.ok()) << result.status();
  const auto token = [](char c) { return static_cast<TokenId>(kFirstText + c - ' '); };
  result = worker_.Run(PlanBuilder(2)
                           .Fork(1, 0)
                           .Append(0, token('A'))
                           .Append(1, token('C'))
                           .Copy(0, 8)
                           .Slice(0, 3, 1, true)
                           .Slice(1, 3, 1, true, {8, 9, 10, 11})
                           .plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->candidate_lengths(), ElementsAre(1, 1));
  EXPECT_THAT(result->candidate_token_ids(), ElementsAre(token('B'), token('D')));
}

// Takes results until the draw of row 0, which has `num_tokens` tokens, is not postponed.
absl::StatusOr<v1::StepResult> Repeat(TestWorker* worker, absl::StatusOr<v1::StepResult> result, uint32_t num_tokens) {
  while (result.ok() && result->postponed_slices_size() > 0) {
    EXPECT_THAT(result->token_ids(), IsEmpty());
    result = worker->Run(PlanBuilder(result->step() + 1).Slice(0, num_tokens, 0, true).plan());
  }
  return result;
}

TEST_F(GuidedTest, ADrawWaitsUntilTheGuideIsCompiled) {
  const std::vector<TokenId> expected = Draw(Guided("[A-F]{3}-[0-9]{7}"), 4);
  v1::RowSampling sampling = Guided("[A-F]{3}-[0-9]{7}");
  sampling.set_guide_owner("another");
  worker_.executor().Reset();
  worker_.executor().SetMayPostpone(true);
  auto result = worker_.Run(PlanBuilder(1).Start(0, {11, 12, 13}, sampling).Slice(0, 0, 3, true, Blocks(0, 4)).plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->postponed_slices(), ElementsAre(0u));
  // The next plan was made before the manager knew of that.
  result = worker_.Run(PlanBuilder(2).Slice(0, 3, 1, true).WantTables().plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->postponed_slices(), ElementsAre(0u));
  EXPECT_THAT(result->tables().computed_tokens(), ElementsAre(3u));
  result = Repeat(&worker_, result, 3);
  std::vector<TokenId> tokens;
  for (uint32_t num_tokens = 4; result.ok() && result->token_ids_size() == 1; ++num_tokens) {
    tokens.push_back(static_cast<TokenId>(result->token_ids(0)));
    if (tokens.size() == expected.size()) break;
    result = worker_.Run(PlanBuilder(result->step() + 1).Slice(0, num_tokens - 1, 1, true).plan());
    result = Repeat(&worker_, result, num_tokens);
  }
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(tokens, expected);
}

TEST_F(GuidedTest, ForksRepeatTheirDrawsInTheBlockThatTheyShare) {
  v1::RowSampling sampling = Guided("[A-F]{3}");
  worker_.executor().Reset();
  worker_.executor().SetMayPostpone(true);
  auto result = worker_.Run(PlanBuilder(1)
                                .Start(0, {11, 12, 13, 14}, sampling)
                                .Fork(1, 0, /*sample_index=*/1)
                                .Slice(0, 0, 4, true, Blocks(0, 1))
                                .Slice(1, 4, 0, true, Blocks(0, 1))
                                .plan());
  while (result.ok() && result->postponed_slices_size() > 0) {
    ASSERT_EQ(result->postponed_slices_size(), 2);
    result = worker_.Run(PlanBuilder(result->step() + 1).Slice(0, 4, 0, true).Slice(1, 4, 0, true).plan());
  }
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->step(), 1u);
  const std::vector<uint32_t> drawn(result->token_ids().begin(), result->token_ids().end());
  worker_.executor().Reset();
  worker_.executor().SetMayPostpone(false);
  result = worker_.Run(PlanBuilder(1)
                           .Start(0, {11, 12, 13, 14}, sampling)
                           .Fork(1, 0, /*sample_index=*/1)
                           .Slice(0, 0, 4, true, Blocks(0, 1))
                           .Slice(1, 4, 0, true, Blocks(0, 1))
                           .plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(drawn, ElementsAreArray(result->token_ids()));
}

TEST_F(GuidedTest, ADrawIsRepeatedOnlyWhereAllIsComputed) {
  worker_.executor().Reset();
  ASSERT_TRUE(worker_.Run(PlanBuilder(1).Start(0, {11, 12, 13}).Slice(0, 0, 2, false, Blocks(0, 4)).plan()).ok());
  const auto result = worker_.Run(PlanBuilder(2).Slice(0, 3, 0, true).plan());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("slice 0 repeats a draw after position 3, its row is"));
}

TEST_F(GuidedTest, EndTokensFollowWhereTheVocabularyCannotGoOn) {
  EXPECT_THAT(Draw(Guided("\\u00e9"), 3), Each(kEnd));
  EXPECT_EQ(TextOf(Draw(Guided("A\\u00e9"), 3)), "A");
}

TEST_F(GuidedTest, WrongGuidesAndVocabulariesBreakTheContract) {
  const auto error_of = [&](const v1::StepPlan& plan) {
    worker_.executor().Reset();
    return std::string(worker_.Run(plan).status().message());
  };
  EXPECT_THAT(error_of(PlanBuilder(1).Start(0, {11}, Guided("(")).plan()),
              HasSubstr("starts[0].sampling.guided: at byte 0"));
  v1::StepPlan plan = VocabularyPlan(worker_.limits().vocab_size);
  plan.mutable_vocabulary()->add_lengths(0);
  EXPECT_THAT(error_of(plan), HasSubstr("vocabulary.lengths has"));
  plan = VocabularyPlan(worker_.limits().vocab_size);
  plan.mutable_vocabulary()->mutable_bytes()->push_back('x');
  EXPECT_THAT(error_of(plan), HasSubstr("vocabulary.lengths add up to"));
  plan = VocabularyPlan(worker_.limits().vocab_size);
  plan.mutable_vocabulary()->clear_end_token_ids();
  EXPECT_THAT(error_of(plan), HasSubstr("vocabulary.end_token_ids is empty"));
  TestWorker other;
  EXPECT_THAT(std::string(other.Run(PlanBuilder(1).Start(0, {11}, Guided("a")).plan()).status().message()),
              HasSubstr("no plan had a vocabulary"));
}

TEST(SelectTokensTest, TheShorterListSaysWhichTokensAreLeft) {
  const std::vector<uint32_t> few = {0b0110};
  GuidedTokens tokens = SelectTokens(few, 8, {}, {});
  EXPECT_THAT(tokens.allowed, ElementsAre(1, 2));
  EXPECT_THAT(tokens.masked, IsEmpty());
  const std::vector<uint32_t> many = {0b11101111};
  tokens = SelectTokens(many, 8, {}, {});
  EXPECT_THAT(tokens.allowed, IsEmpty());
  EXPECT_THAT(tokens.masked, ElementsAre(4));
  tokens = SelectTokens(few, 8, {2, 5}, {});
  EXPECT_THAT(tokens.allowed, ElementsAre(2));
  tokens = SelectTokens(few, 8, {5}, {});
  EXPECT_THAT(tokens.allowed, ElementsAre(1, 2));
  tokens = SelectTokens(few, 8, {}, {1});
  EXPECT_THAT(tokens.allowed, ElementsAre(2));
}

}  // namespace
}  // namespace quire
