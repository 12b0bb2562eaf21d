// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "kernels/sampling.h"
#include "tests/worker/generation.h"
#include "tests/worker/test_worker.h"

namespace quire {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;

// Tests the effect of sampling parameters from the plan to the tokens.
class SamplingTest : public ::testing::Test {
 protected:
  std::vector<TokenId> Draw(const v1::RowSampling& sampling, int num_tokens = 12) {
    return Generate(&worker_, {.prompt = {11, 12, 13}, .sampling = sampling, .num_tokens = num_tokens}).tokens;
  }

  TestWorker worker_;
};

TEST(SamplingNumbersTest, TheListHasEveryNumberOfARowButTopK) {
  const google::protobuf::Descriptor* const message = v1::RowSampling::descriptor();
  std::vector<std::string> numbers, named;
  for (int i = 0; i < message->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = message->field(i);
    if (field->type() == field->TYPE_FLOAT && !field->is_repeated()) numbers.push_back(field->name());
  }
  for (const SamplingNumber& number : kSamplingNumbers) named.push_back(number.name);
  EXPECT_THAT(named, UnorderedElementsAreArray(numbers));
}

TEST_F(SamplingTest, BiasDecidesTheDraw) {
  v1::RowSampling sampling = Greedy();
  sampling.add_bias_token_ids(42);
  sampling.add_biases(100);
  EXPECT_THAT(Draw(sampling), Each(42));
}

TEST_F(SamplingTest, OnlyAllowedTokensAreDrawn) {
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(2);
  for (uint32_t token : {9, 17, 9, 33}) sampling.add_allowed_token_ids(token);
  const std::vector<TokenId> tokens = Draw(sampling, 40);
  EXPECT_EQ(std::set<TokenId>(tokens.begin(), tokens.end()), (std::set<TokenId>{9, 17, 33}));
}

TEST_F(SamplingTest, APresencePenaltyLargerThanAllLogitsAllowsNoTokenTwice) {
  v1::RowSampling sampling = Greedy();
  sampling.set_presence_penalty(1000);
  const std::vector<TokenId> tokens = Draw(sampling, 60);
  EXPECT_EQ(std::set<TokenId>(tokens.begin(), tokens.end()).size(), 60u);
}

TEST_F(SamplingTest, AFrequencyPenaltyLargerThanAllLogitsUsesAllTokensEquallyOften) {
  v1::RowSampling sampling = Greedy();
  sampling.set_frequency_penalty(1000);
  for (uint32_t token : {9, 17, 33}) sampling.add_allowed_token_ids(token);
  const std::vector<TokenId> tokens = Draw(sampling, 30);
  for (TokenId token : {9, 17, 33}) EXPECT_EQ(std::count(tokens.begin(), tokens.end(), token), 10);
}

TEST_F(SamplingTest, ARepetitionPenaltyCountsThePrompt) {
  v1::RowSampling sampling = Greedy();
  sampling.add_bias_token_ids(12);  // In the prompt.
  sampling.add_biases(50);
  sampling.add_bias_token_ids(40);  // Not in it.
  sampling.add_biases(45);
  EXPECT_THAT(Draw(sampling, 1), ElementsAre(12));
  sampling.set_repetition_penalty(2);
  EXPECT_THAT(Draw(sampling, 1), ElementsAre(40));
}

TEST_F(SamplingTest, ABadWordOfOneTokenIsNeverDrawn) {
  const TokenId first = Draw(Greedy())[0];
  v1::RowSampling sampling = Greedy();
  sampling.add_bad_word_token_ids(first);
  sampling.add_bad_word_lengths(1);
  EXPECT_THAT(Draw(sampling, 30), Not(Contains(first)));
}

TEST_F(SamplingTest, ABadWordOfSeveralTokensIsNotCompleted) {
  const std::vector<TokenId> free = Draw(Greedy(), 6);
  v1::RowSampling sampling = Greedy();
  for (int i = 2; i < 5; ++i) sampling.add_bad_word_token_ids(free[i]);
  sampling.add_bad_word_lengths(3);
  const std::vector<TokenId> tokens = Draw(sampling, 6);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.begin() + 4, free.begin()));
  EXPECT_NE(tokens[4], free[4]);
}

TEST_F(SamplingTest, ABadWordThatBeginsInThePromptIsNotOne) {
  const TokenId first = Draw(Greedy())[0];
  v1::RowSampling sampling = Greedy();
  sampling.add_bad_word_token_ids(13);  // The prompt's last token.
  sampling.add_bad_word_token_ids(first);
  sampling.add_bad_word_lengths(2);
  EXPECT_EQ(Draw(sampling)[0], first);
}

TEST_F(SamplingTest, EndTokensAreMaskedUntilMinTokens) {
  v1::RowSampling sampling = Greedy();
  sampling.add_bias_token_ids(2);
  sampling.add_biases(100);
  sampling.add_min_tokens_masked_ids(2);
  sampling.set_min_tokens(3);
  const std::vector<TokenId> tokens = Draw(sampling, 5);
  EXPECT_THAT(std::vector<TokenId>(tokens.begin(), tokens.begin() + 3), Not(Contains(2)));
  EXPECT_THAT(std::vector<TokenId>(tokens.begin() + 3, tokens.end()), Each(2));
}

TEST_F(SamplingTest, MasksThatForbidEveryAllowedTokenAreDropped) {
  v1::RowSampling sampling = Greedy();
  sampling.add_allowed_token_ids(7);
  sampling.add_bad_word_token_ids(7);
  sampling.add_bad_word_lengths(1);
  EXPECT_THAT(Draw(sampling, 3), Each(7));
}

TEST_F(SamplingTest, ABadWordThatForbidsTheOnlyAllowedTokenMidwayIsDropped) {
  v1::RowSampling sampling = Greedy();
  sampling.add_allowed_token_ids(7);
  for (int i = 0; i < 2; ++i) sampling.add_bad_word_token_ids(7);
  sampling.add_bad_word_lengths(2);
  EXPECT_THAT(Draw(sampling, 4), ElementsAre(7, 7, 7, 7));
}

TEST_F(SamplingTest, ASmallTopNSigmaIsGreedyAtAnyTemperature) {
  v1::RowSampling sampling = Greedy();
  const std::vector<TokenId> greedy = Draw(sampling);
  sampling.set_temperature(5);
  sampling.set_top_n_sigma(1e-6f);
  EXPECT_EQ(Draw(sampling), greedy);
  sampling.set_top_n_sigma(3);
  EXPECT_NE(Draw(sampling), greedy);
}

TEST_F(SamplingTest, XtcTakesTheSecondOfTwoTopChoices) {
  v1::RowSampling sampling = Greedy();
  const std::vector<TokenId> greedy = Draw(sampling);
  sampling.set_temperature(1);
  sampling.set_top_k(2);
  sampling.set_xtc_probability(1);
  const std::vector<TokenId> second = Draw(sampling);
  EXPECT_NE(second[0], greedy[0]);
  sampling.set_seed(sampling.seed() + 1);
  EXPECT_EQ(Draw(sampling), second) << "one token is left";
}

TEST_F(SamplingTest, TopKOfOneIsGreedyAtAnyTemperature) {
  v1::RowSampling sampling = Greedy();
  const std::vector<TokenId> greedy = Draw(sampling);
  sampling.set_temperature(5);
  sampling.set_top_k(1);
  EXPECT_EQ(Draw(sampling), greedy);
}

TEST_F(SamplingTest, TopKBeyondTheVocabularyIsAll) {
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(1);
  const std::vector<TokenId> all = Draw(sampling);
  sampling.set_top_k(4000000000u);
  EXPECT_EQ(Draw(sampling), all);
}

}  // namespace
}  // namespace quire
