// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/kv_manager/requests/fake_engine.h"
#include "tests/kv_manager/requests/token_stream_harness.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

// Tests streams of requests with several samples.

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TokenStreamSamplesTest : public TokenStreamTest {
 protected:
  std::vector<uint32_t> Indices() const {
    std::vector<uint32_t> indices;
    for (const auto& response : writer_.responses) indices.push_back(response.index());
    return indices;
  }
  // Number of responses with a usage, which must be the last one.
  int NumUsages() const {
    int num_usages = 0;
    for (const auto& response : writer_.responses) num_usages += response.has_usage();
    EXPECT_TRUE(num_usages == 0 || writer_.responses.back().has_usage());
    return num_usages;
  }
};

TEST_F(TokenStreamSamplesTest, EachResponseHasTokensOfOneSample) {
  request_.set_n(2);
  MakeStream();
  Push("a", 0);
  Push("x", 1);
  Push("b", 0);
  CompleteAllWrites();
  EXPECT_THAT(Indices(), ElementsAre(0, 1));
  EXPECT_EQ(writer_.responses[0].text_delta(), "ab");
  EXPECT_EQ(writer_.responses[1].text_delta(), "x");
  EXPECT_EQ(writer_.responses[1].position(), 2u);
  Push("y", 1);
  CompleteAllWrites();
  EXPECT_EQ(writer_.responses[2].position(), 3u);
}

TEST_F(TokenStreamSamplesTest, SamplesEndInAnyOrderAndTheUsageIsInTheVeryLastResponse) {
  request_.set_n(3);
  MakeStream();
  stream_->OnStarted(2);
  for (int i = 0; i < 3; ++i) Push("a", i);
  Finish(2, FinishReason::kLength);
  CompleteAllWrites();
  EXPECT_EQ(writer_.last(2).finish_reason(), v1::FINISH_REASON_LENGTH);
  Push("b", 0);
  PushToken(ToyTokenizer::kEos, 0);
  Finish(0, FinishReason::kStopToken);
  CompleteAllWrites();
  EXPECT_EQ(NumUsages(), 0);
  Finish(1, FinishReason::kLength, /*ends_request=*/true);
  CompleteAllWrites();
  EXPECT_EQ(NumUsages(), 1);
  const v1::Usage& usage = writer_.responses.back().usage();
  EXPECT_EQ(usage.prompt_tokens(), 2u);
  EXPECT_EQ(usage.completion_tokens(), 5u);
  EXPECT_EQ(usage.cached_tokens(), 2u);
  EXPECT_EQ(writer_.status, absl::OkStatus());
  EXPECT_EQ(num_ends_, 1);
  EXPECT_EQ(end_.finish_reason, "stop,length") << "of all samples, each once";
  EXPECT_EQ(end_.prompt_tokens, 2);
  EXPECT_EQ(end_.cached_tokens, 2);
  EXPECT_EQ(end_.output_tokens, 5);
  EXPECT_THAT(engine_.cancelled, IsEmpty());
}

TEST_F(TokenStreamSamplesTest, ManyEndsAtOnceAreWrittenOneAfterTheOther) {
  request_.set_n(3);
  MakeStream();
  for (int i = 0; i < 3; ++i) Push("a", i);
  for (int i : {1, 2, 0}) Finish(i, FinishReason::kLength, i == 0);
  RunJobs();
  EXPECT_FALSE(writer_.status.has_value());
  CompleteAllWrites();
  EXPECT_THAT(Indices(), ElementsAre(0, 1, 2));
  EXPECT_EQ(NumUsages(), 1);
  EXPECT_EQ(writer_.num_limits, 1);
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamSamplesTest, StopStringEndsItsSampleAlone) {
  request_.set_n(2);
  request_.mutable_stopping()->add_stop("XY");
  MakeStream();
  Push("aXYzz", 0);
  Push("b", 1);
  CompleteAllWrites();
  EXPECT_THAT(engine_.cancelled_samples, ElementsAre(0));
  EXPECT_THAT(engine_.cancelled, IsEmpty());
  EXPECT_EQ(writer_.last(0).stop(), "XY");
  Push("z", 0);  // This token is from the step that ran when the sample was cancelled.
  Push("cXY", 1);
  CompleteAllWrites();
  EXPECT_THAT(engine_.cancelled, ElementsAre(kStreamId));
  EXPECT_THAT(engine_.reasons, ElementsAre(FinishReason::kStopToken));
  EXPECT_EQ(writer_.text(0), "a");
  EXPECT_EQ(writer_.text(1), "bc");
  EXPECT_EQ(writer_.responses.back().usage().completion_tokens(), 7u);
  EXPECT_EQ(writer_.status, absl::OkStatus());
}

// The engine takes the second sample's end for one of two, because it does not know yet that the first has ended.
TEST_F(TokenStreamSamplesTest, RequestIsOverWhenAllHaveEndedThoughTheEngineCountsOneMore) {
  request_.set_n(2);
  request_.mutable_stopping()->add_stop("X");
  MakeStream();
  Push("aX", 0);
  Push("b", 1);
  Finish(1, FinishReason::kLength, /*ends_request=*/false);
  CompleteAllWrites();
  EXPECT_THAT(engine_.cancelled, ElementsAre(kStreamId));
  EXPECT_EQ(writer_.status, absl::OkStatus());
  EXPECT_EQ(NumUsages(), 1);
}

TEST_F(TokenStreamSamplesTest, AbortEndsTheSamplesThatGoOn) {
  request_.set_n(3);
  MakeStream();
  Push("a", 0);
  Push("b", 1);
  Finish(1, FinishReason::kLength);
  EXPECT_TRUE(stream_->Abort());
  CompleteAllWrites();
  EXPECT_EQ(writer_.last(0).finish_reason(), v1::FINISH_REASON_ABORT);
  EXPECT_EQ(writer_.last(1).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(writer_.last(2).finish_reason(), v1::FINISH_REASON_ABORT);
  EXPECT_EQ(writer_.responses.back().usage().completion_tokens(), 2u);
  EXPECT_THAT(engine_.cancelled, ElementsAre(kStreamId));
}

TEST_F(TokenStreamSamplesTest, FailureComesBehindWhatIsThere) {
  request_.set_n(2);
  MakeStream();
  Push("a", 0);
  Push("b", 1);
  stream_->OnFailed(absl::DeadlineExceededError("late"));
  CompleteAllWrites();
  EXPECT_EQ(writer_.text(0) + writer_.text(1), "ab");
  EXPECT_EQ(NumUsages(), 0);
  EXPECT_EQ(writer_.status, absl::DeadlineExceededError("late"));
}

TEST_F(TokenStreamSamplesTest, OutboxCountsTokensOfAllSamples) {
  request_.set_n(2);
  MakeStream(/*max_outbox_tokens=*/4);
  Push("a", 0);
  RunJobs();  // A write is in progress.
  Push("bc", 0);
  Push("xy", 1);
  EXPECT_EQ(writer_.num_limits, 0);
  Push("z", 1);
  CompleteAllWrites();
  EXPECT_EQ(writer_.text(0), "abc");
  EXPECT_EQ(writer_.text(1), "xy");
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(TokenStreamSamplesTest, OutboxHasRoomForAStep) {
  request_.set_n(3);
  MakeStream(/*max_outbox_tokens=*/1);
  for (int i = 0; i < 3; ++i) Push("a", i);
  for (int i = 0; i < 3; ++i) Finish(i, FinishReason::kLength, i == 2);
  CompleteAllWrites();
  EXPECT_EQ(writer_.status, absl::OkStatus());
}

TEST_F(TokenStreamSamplesTest, ResponsesOfABatchAreWrittenBeforeTheNextIsRead) {
  request_.set_n(2);
  MakeStream();
  Push("a", 0);
  Push("x", 1);
  RunJobs();
  Push("b", 0);
  CompleteWrite();
  RunJobs();
  EXPECT_THAT(Indices(), ElementsAre(0, 1));
  CompleteAllWrites();
  EXPECT_THAT(Indices(), ElementsAre(0, 1, 0));
}

TEST_F(TokenStreamSamplesTest, EachSampleBeginsWithTheEchoAndItsOwnSeed) {
  request_.set_n(2);
  request_.set_echo(true);
  request_.set_prompt_logprobs(0);
  request_.mutable_sampling()->set_seed(41);
  MakeStream();
  Push("b", 1);
  CompleteAllWrites();
  Push("a", 0);
  Push("c", 1);
  CompleteAllWrites();
  EXPECT_EQ(writer_.text(0), "pa");
  EXPECT_EQ(writer_.text(1), "pbc");
  ASSERT_THAT(writer_.responses, SizeIs(3));
  EXPECT_EQ(writer_.responses[0].seed(), 42u);
  EXPECT_EQ(writer_.responses[0].prompt_logprobs_size(), 0);
  EXPECT_EQ(writer_.responses[1].seed(), 41u);
  EXPECT_EQ(writer_.responses[1].prompt_logprobs_size(), 2);
  EXPECT_FALSE(writer_.responses[2].has_seed());
}

TEST_F(TokenStreamSamplesTest, WithoutMaxTokensEachSampleIsThePromptAlone) {
  request_.set_n(2);
  request_.set_echo(true);
  request_.set_logprobs(1);
  request_.mutable_stopping()->set_max_tokens(0);
  MakeStream();
  Push("a", 0);
  PushToken(ToyTokenizer::kEos, 1, -0.5f);
  CompleteAllWrites();
  EXPECT_THAT(writer_.responses, IsEmpty());
  Finish(0, FinishReason::kLength);
  Finish(1, FinishReason::kStopToken, /*ends_request=*/true);
  CompleteAllWrites();
  EXPECT_THAT(Indices(), ElementsAre(0, 1));
  for (const uint32_t index : {0, 1}) {
    EXPECT_EQ(writer_.text(index), "p");
    EXPECT_EQ(writer_.last(index).finish_reason(), v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(writer_.last(index).token_ids_size(), 0);
    EXPECT_EQ(writer_.last(index).logprobs_size(), 0);
  }
  EXPECT_EQ(writer_.responses.back().usage().completion_tokens(), 0u);
}

TEST_F(TokenStreamSamplesTest, BestOfSendsTheBestByMeanLogprobAtTheEnd) {
  request_.set_n(2);
  request_.set_best_of(3);
  request_.set_echo(true);
  request_.set_prompt_logprobs(0);
  request_.mutable_sampling()->set_seed(10);
  MakeStream();
  PushToken(ToyTokenizer::Byte('a'), 0, -0.5f);
  PushToken(ToyTokenizer::Byte('b'), 0, -1.5f);  // The mean is -1.
  PushToken(ToyTokenizer::Byte('c'), 1, -2.0f);
  PushToken(ToyTokenizer::Byte('d'), 2, -0.25f);
  Finish(2, FinishReason::kLength);
  Finish(0, FinishReason::kLength);
  CompleteAllWrites();
  EXPECT_THAT(writer_.responses, IsEmpty());
  Finish(1, FinishReason::kLength, /*ends_request=*/true);
  CompleteAllWrites();
  EXPECT_THAT(Indices(), ElementsAre(0, 1));
  EXPECT_EQ(writer_.text(0), "pd");
  EXPECT_EQ(writer_.text(1), "pab");
  EXPECT_EQ(writer_.last(0).score(), -0.25f);
  EXPECT_EQ(writer_.last(1).score(), -1.0f);
  EXPECT_EQ(writer_.last(0).seed(), 12u);
  EXPECT_EQ(writer_.last(0).prompt_logprobs_size(), 2);
  EXPECT_EQ(writer_.last(0).logprobs_size(), 0) << "nobody asked for them";
  EXPECT_EQ(writer_.responses.back().usage().completion_tokens(), 4u);
}

TEST_F(TokenStreamSamplesTest, BestOfEqualToNStreamsAtOnceWithoutScores) {
  request_.set_n(2);
  request_.set_best_of(2);
  MakeStream();
  PushToken(ToyTokenizer::Byte('a'), 0, -2.0f);
  PushToken(ToyTokenizer::Byte('b'), 1, -1.0f);
  CompleteAllWrites();
  EXPECT_EQ(writer_.text(0), "a");
  for (int i = 0; i < 2; ++i) Finish(i, FinishReason::kLength, i == 1);
  CompleteAllWrites();
  EXPECT_FALSE(writer_.last(0).has_score());
}

TEST_F(TokenStreamSamplesTest, FailedBestOfSendsNothing) {
  request_.set_best_of(2);
  MakeStream();
  Push("a", 0);
  stream_->OnFailed(absl::UnavailableError("gone"));
  CompleteAllWrites();
  EXPECT_THAT(writer_.responses, IsEmpty());
  EXPECT_EQ(writer_.status, absl::UnavailableError("gone"));
}

class TokenStreamBeamTest : public TokenStreamSamplesTest {
 protected:
  TokenStreamBeamTest() {
    request_.mutable_beam()->set_width(3);
    request_.mutable_beam()->set_num_return_sequences(2);
  }
};

TEST_F(TokenStreamBeamTest, TheBestStreamsAndTheOthersComeWholeWithTheirScores) {
  MakeStream();
  Push("a", 0);
  Push("a", 1);
  CompleteAllWrites();
  EXPECT_THAT(Indices(), ElementsAre(0));
  EXPECT_FALSE(writer_.last(0).has_seed());
  Push("bc", 0);
  Push("d", 1);
  Finish(0, FinishReason::kLength, false, -0.5f);
  Finish(1, FinishReason::kStopToken, true, -0.75f);
  CompleteAllWrites();
  EXPECT_EQ(writer_.text(0), "abc");
  EXPECT_EQ(writer_.text(1), "ad");
  EXPECT_EQ(writer_.last(0).score(), -0.5f);
  EXPECT_EQ(writer_.last(1).score(), -0.75f);
  EXPECT_EQ(writer_.last(1).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(writer_.responses.back().usage().completion_tokens(), 5u);
  EXPECT_EQ(NumUsages(), 1);
}

TEST_F(TokenStreamBeamTest, StopStringIsCutFromTheHypothesisAndWaitsForTheScore) {
  request_.mutable_stopping()->add_stop("XY");
  MakeStream();
  Push("aXY", 0);
  CompleteAllWrites();
  EXPECT_THAT(writer_.responses, IsEmpty());
  Push("b", 1);
  Finish(0, FinishReason::kStopToken, false, -0.5f);
  Finish(1, FinishReason::kLength, true, -0.75f);
  CompleteAllWrites();
  EXPECT_EQ(writer_.text(0), "a");
  EXPECT_EQ(writer_.last(0).stop(), "XY");
  EXPECT_EQ(writer_.last(0).score(), -0.5f);
  EXPECT_THAT(engine_.cancelled, IsEmpty());
  EXPECT_THAT(engine_.cancelled_samples, IsEmpty());
}

TEST_F(TokenStreamBeamTest, HypothesesThatNeverWereAreNotSent) {
  MakeStream();
  Push("a", 0);
  Push("a", 1);
  Finish(0, FinishReason::kLength, /*ends_request=*/true, -0.5f);
  CompleteAllWrites();
  EXPECT_THAT(Indices(), ElementsAre(0));
  EXPECT_EQ(writer_.responses.back().usage().completion_tokens(), 1u);
}

TEST_F(TokenStreamBeamTest, AbortShowsHowFarTheSearchWasCertain) {
  MakeStream();
  Push("a", 0);
  Push("a", 1);
  EXPECT_TRUE(stream_->Abort());
  CompleteAllWrites();
  EXPECT_THAT(Indices(), ElementsAre(0));
  EXPECT_EQ(writer_.last(0).finish_reason(), v1::FINISH_REASON_ABORT);
  EXPECT_FALSE(writer_.last(0).has_score());
  EXPECT_EQ(NumUsages(), 1);
}

TEST_F(TokenStreamBeamTest, TheBurstAtTheEndFitsIntoAnyOutbox) {
  MakeStream(/*max_outbox_tokens=*/1);
  for (int i = 0; i < 2; ++i) Push("abcdefghijklmnop", i);
  for (int i = 0; i < 2; ++i) Finish(i, FinishReason::kLength, i == 1);
  CompleteAllWrites();
  EXPECT_EQ(writer_.status, absl::OkStatus());
  EXPECT_EQ(writer_.text(1), "abcdefghijklmnop");
}

// Samples end in a random order, and the engine and the stream learn of each other's ends at random times.
TEST_F(TokenStreamSamplesTest, AnyTimingGivesEachSampleItsTextAndOneUsage) {
  constexpr int kSamples = 4;
  request_.set_n(kSamples);
  request_.mutable_stopping()->add_stop("X");
  request_.mutable_stopping()->set_max_tokens(9);
  const std::string texts[] = {"abcXdefgh", "abcdefghi", "X", "abcdefgX"};
  const std::string expected[] = {"abc", "abcdefghi", "", "abcdefg"};
  for (int seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    writer_ = ManualWriter();
    engine_.cancelled.clear();
    engine_.cancelled_samples.clear();
    num_ends_ = 0;
    MakeStream();
    std::vector<int> live = {0, 1, 2, 3};
    while (!live.empty() && engine_.cancelled.empty()) {
      const int i = live[random() % live.size()];
      const auto& gone = engine_.cancelled_samples;
      const bool is_cancelled = std::find(gone.begin(), gone.end(), i) != gone.end();
      const size_t num_done = num_tokens_[i];
      if (is_cancelled || num_done == 9) {
        std::erase(live, i);
        if (!is_cancelled) Finish(i, FinishReason::kLength, live.empty());
      } else {
        Push(std::string(1, num_done < texts[i].size() ? texts[i][num_done] : 'z'), i);
      }
      if (random() % 2) RunJobs();
      if (random() % 2 && writer_.is_writing) CompleteWrite();
    }
    CompleteAllWrites();
    for (int i = 0; i < kSamples; ++i) {
      ASSERT_EQ(writer_.text(i), expected[i]);
      ASSERT_EQ(writer_.last(i).stop(), i == 1 ? "" : "X");
    }
    ASSERT_EQ(NumUsages(), 1);
    ASSERT_EQ(writer_.responses.back().usage().completion_tokens(), 4u + 9 + 1 + 8);
    ASSERT_EQ(writer_.status, absl::OkStatus());
    ASSERT_EQ(num_ends_, 1);
  }
}

}  // namespace
}  // namespace quire
