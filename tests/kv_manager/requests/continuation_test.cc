// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_reason.h"
#include "tests/kv_manager/requests/token_stream_harness.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

// Tests requests that continue tokens which their clients have from an earlier stream.

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ContinuationTest : public TokenStreamTest {
 protected:
  ContinuationTest() {
    request_.mutable_sampling()->set_seed(5);
    request_.mutable_stopping()->set_max_tokens(12);
  }

  v1::ContinuedSample* Add(uint32_t index, const std::string& bytes, bool has_finish = false) {
    v1::ContinuedSample* const sample = request_.add_continue_from();
    sample->set_index(index);
    for (const char c : bytes) sample->add_token_ids(ToyTokenizer::Byte(c));
    sample->set_has_finish(has_finish);
    return sample;
  }

  absl::StatusOr<ValidRequest> Validate() const {
    return ValidateGenerate(request_, *model_, RequestLimits(), /*drawn_seed=*/1);
  }
  std::string Error() const {
    const absl::Status status = Validate().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  // What the stream of one sample gives for these tokens, the first of which the client has already.
  struct Outcome {
    std::vector<std::string> texts;  // By token, from the first one on that the client has not. The end is the last.
    v1::GenerateResponse last;
  };
  Outcome Stream(const std::string& bytes, size_t num_continued, FinishReason reason) {
    request_.clear_continue_from();
    if (num_continued > 0) Add(0, bytes.substr(0, num_continued));
    writer_ = ManualWriter();
    MakeStream();
    num_tokens_[0] = static_cast<int>(num_continued);
    Outcome outcome;
    size_t num_read = 0;
    const auto read = [&] {
      CompleteAllWrites();
      std::string text;
      for (; num_read < writer_.responses.size(); ++num_read) text += writer_.responses[num_read].text_delta();
      outcome.texts.push_back(text);
    };
    for (size_t i = num_continued; i < bytes.size(); ++i) {
      Push(bytes.substr(i, 1));
      read();
    }
    if (!writer_.status.has_value()) Finish(0, reason, /*ends_request=*/true);
    read();
    EXPECT_EQ(writer_.status, absl::OkStatus());
    outcome.last = writer_.responses.back();
    return outcome;
  }

  // Cuts the stream behind each token.
  void TestAllCuts(const std::string& bytes, FinishReason reason) {
    const Outcome whole = Stream(bytes, 0, reason);
    EXPECT_NE(whole.last.finish_reason(), v1::FINISH_REASON_UNSPECIFIED);
    for (size_t i = 1; i < bytes.size(); ++i) {
      SCOPED_TRACE(i);
      const Outcome rest = Stream(bytes, i, reason);
      EXPECT_EQ(rest.texts,
                std::vector<std::string>(whole.texts.begin() + static_cast<ptrdiff_t>(i), whole.texts.end()));
      EXPECT_EQ(rest.last.finish_reason(), whole.last.finish_reason());
      EXPECT_EQ(rest.last.stop(), whole.last.stop());
      EXPECT_EQ(rest.last.position() + rest.last.token_ids_size(), whole.last.position() + whole.last.token_ids_size());
      EXPECT_EQ(rest.last.usage().prompt_tokens(), whole.last.usage().prompt_tokens());
      EXPECT_EQ(rest.last.usage().completion_tokens(), whole.last.usage().completion_tokens());
      EXPECT_EQ(writer_.tokens().size(), bytes.size() - i);
    }
  }
};

TEST_F(ContinuationTest, CharactersOfSeveralTokensAreWhole) {
  TestAllCuts(
      "a\xc3\xa9\xe2\x82\xac"
      "bc",
      FinishReason::kLength);
}

TEST_F(ContinuationTest, AStopStringIsFoundAcrossTheCut) {
  request_.mutable_stopping()->add_stop("xyz");
  TestAllCuts("abxyxxyz", FinishReason::kLength);
}

TEST_F(ContinuationTest, TextThatWasHeldBackForAStopStringIsSentOnce) {
  request_.mutable_stopping()->add_stop("xyz");
  TestAllCuts("abxyxxy!cxy", FinishReason::kLength);
}

TEST_F(ContinuationTest, TheTokensCountForTheLeastNumberOfTokens) {
  request_.mutable_stopping()->add_stop("x");
  request_.mutable_stopping()->set_min_tokens(4);
  TestAllCuts("abxax", FinishReason::kLength);
}

TEST_F(ContinuationTest, AnEchoIsNotSentAgain) {
  request_.set_echo(true);
  TestAllCuts("abc", FinishReason::kLength);
}

TEST_F(ContinuationTest, TheEngineGetsTheSamplesThatHaveNotEnded) {
  request_.set_n(4);
  request_.mutable_stopping()->add_stop("z");
  request_.mutable_stopping()->set_max_tokens(3);
  request_.mutable_stopping()->add_stop_token_ids(ToyTokenizer::Byte('s'));
  Add(3, "a");
  Add(0, "abz", /*has_finish=*/true);
  Add(1, "as");
  const absl::StatusOr<ValidRequest> valid = Validate();
  ASSERT_TRUE(valid.ok()) << valid.status();
  ASSERT_THAT(valid->request.continued, SizeIs(2));
  EXPECT_EQ(valid->request.continued[0].sample_index, 2);
  EXPECT_THAT(valid->request.continued[0].tokens, IsEmpty());
  EXPECT_EQ(valid->request.continued[1].sample_index, 3);
  EXPECT_EQ(valid->request.continued[1].tokens, std::vector<TokenId>{ToyTokenizer::Byte('a')});
  EXPECT_FALSE(valid->is_over());

  MakeStream();
  num_tokens_ = {3, 2, 0, 1};
  Push("b", 3);
  Push("ab", 2);
  Finish(3, FinishReason::kLength);
  Finish(2, FinishReason::kLength, /*ends_request=*/true);
  CompleteAllWrites();
  EXPECT_EQ(writer_.status, absl::OkStatus());
  EXPECT_EQ(writer_.text(0), "") << "its end is known";
  EXPECT_EQ(writer_.last(1).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(writer_.last(1).stop_token_id(), static_cast<uint32_t>(ToyTokenizer::Byte('s')));
  EXPECT_EQ(writer_.last(1).token_ids_size(), 0);
  EXPECT_EQ(writer_.text(2), "ab");
  EXPECT_TRUE(writer_.last(2).has_seed()) << "its first response";
  EXPECT_EQ(writer_.text(3), "b");
  EXPECT_FALSE(writer_.last(3).has_seed());
  EXPECT_EQ(writer_.responses.back().usage().completion_tokens(), 3u + 2 + 2 + 2);
}

TEST_F(ContinuationTest, ARequestWhoseSamplesHaveAllEndedGivesTheirEnds) {
  request_.set_n(2);
  request_.mutable_stopping()->set_max_tokens(2);
  Add(0, "ab", /*has_finish=*/true);
  Add(1, "cd");
  ASSERT_TRUE(Validate()->is_over());
  MakeStream();
  Finish(0, FinishReason::kLength, /*ends_request=*/true);
  CompleteAllWrites();
  EXPECT_EQ(writer_.status, absl::OkStatus());
  ASSERT_THAT(writer_.responses, SizeIs(1));
  EXPECT_EQ(writer_.responses[0].index(), 1u);
  EXPECT_EQ(writer_.responses[0].finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(writer_.responses[0].usage().completion_tokens(), 4u);
}

TEST_F(ContinuationTest, EntriesWithoutTokensContinueNothing) {
  request_.mutable_sampling()->clear_seed();
  Add(0, "");
  const absl::StatusOr<ValidRequest> valid = Validate();
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->continued, IsEmpty());
  EXPECT_THAT(valid->request.continued, IsEmpty());
}

TEST_F(ContinuationTest, PromptLogprobsAreNotSentAgain) {
  request_.set_prompt_logprobs(1);
  Add(0, "a");
  EXPECT_EQ(Validate()->request.sampling.num_prompt_logprobs, -1);
  request_.clear_continue_from();
  request_.set_n(2);
  Add(1, "a");
  EXPECT_EQ(Error(), "prompt_logprobs: is 1, must be unset unless continue_from has tokens with index 0");
}

TEST_F(ContinuationTest, ErrorsNameFieldValueAndLimit) {
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[this] { Add(1, "a"); }, "continue_from[0].index: is 1, the request returns 1"},
      {[this] {
         Add(0, "a");
         Add(0, "a");
       },
       "continue_from[1].index: is 0, as in another entry"},
      {[this] { Add(0, "aaaaaaaaaaaaa"); }, "continue_from[0].token_ids: has 13 tokens, stopping.max_tokens is 12"},
      {[this] { Add(0, "a")->add_token_ids(100'000); },
       "continue_from[0].token_ids[1]: is 100000, the vocabulary has "},
      {[this] {
         request_.mutable_stopping()->add_stop("b");
         Add(0, "abc");
       },
       "continue_from[0].token_ids[2]: follows a token that ends the sample"},
      {[this] { Add(0, "ab", /*has_finish=*/true); },
       "continue_from[0].has_finish: is true, the 2 tokens do not end the sample"},
      {[this] {
         request_.mutable_sampling()->clear_seed();
         Add(0, "ab");
       },
       "sampling.seed: is not set, continue_from needs the seed of the earlier request at temperature 1"},
      {[this] {
         request_.clear_sampling();
         request_.mutable_beam()->set_width(2);
         Add(0, "ab");
       },
       "continue_from: has 1 entries, must have none in a beam search"},
      {[this] {
         request_.set_best_of(3);
         Add(0, "ab");
       },
       "continue_from: has 1 entries, must have none with best_of (3) above n (1)"},
      {[this] { request_.set_continue_numerics("bits"); }, "continue_numerics: cannot be set without continue_from"},
  };
  const v1::GenerateRequest request = request_;
  for (const auto& [set, error] : cases) {
    request_ = request;
    set();
    EXPECT_THAT(Error(), HasSubstr(error));
  }
}

TEST_F(ContinuationTest, OtherNumericsAreRefused) {
  model_->numerics_fingerprint = "bits";
  Add(0, "a");
  request_.set_continue_numerics("bits");
  EXPECT_TRUE(Validate().ok());
  request_.set_continue_numerics("other bits");
  const absl::Status status = Validate().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(ReasonOf(status),
            (StatusReason{"NUMERICS_DIFFER", {{"numerics", "other bits"}, {"other_numerics", "bits"}}}));
}

}  // namespace
}  // namespace quire
