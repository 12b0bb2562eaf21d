// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/token_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "kv_manager/rpc/rpc_status.h"
#include "tests/kv_manager/requests/fake_engine.h"
#include "tests/kv_manager/requests/token_stream_harness.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(TokenStreamTest, TokensThatComeDuringAWriteGoIntoOneResponse) {
  MakeStream();
  Push("a");
  RunJobs();
  Push("bcd");
  RunJobs();
  EXPECT_THAT(writer_.responses, SizeIs(1));
  CompleteWrite();
  RunJobs();
  ASSERT_THAT(writer_.responses, SizeIs(2));
  EXPECT_EQ(writer_.responses[1].text_delta(), "bcd");
  EXPECT_EQ(writer_.responses[1].position(), 3u);
}

TEST_F(TokenStreamTest, NothingIsWrittenBeforeTheFirstToken) {
  request_.set_prompt_logprobs(0);
  MakeStream();
  stream_->OnStarted(0);
  stream_->OnPromptLogprobs(1, {ScoredToken{ToyTokenizer::Byte('p'), -2.0f, 3, {}}});
  RunJobs();
  EXPECT_THAT(writer_.responses, IsEmpty());
  Push("a");
  RunJobs();
  ASSERT_THAT(writer_.responses, SizeIs(1));
  ASSERT_EQ(writer_.responses[0].prompt_logprobs_size(), 2);
  EXPECT_EQ(writer_.responses[0].prompt_logprobs(1).chosen().logprob(), -2.0f);
}

TEST_F(TokenStreamTest, LastTokenAndEndGoTogether) {
  MakeStream();
  Push("a");
  stream_->OnFinished(LastSample(FinishReason::kLength));
  RunJobs();
  ASSERT_THAT(writer_.responses, SizeIs(1));
  EXPECT_EQ(writer_.responses[0].finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(writer_.status, absl::OkStatus());
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamTest, StopTokenIsKnownBeforeTheEndArrives) {
  MakeStream();
  Push("a");
  PushToken(ToyTokenizer::kEos);
  RunJobs();
  stream_->OnFinished(LastSample(FinishReason::kStopToken));
  CompleteWrite();
  RunJobs();
  EXPECT_EQ(writer_.text(), "a");
  EXPECT_EQ(writer_.responses.back().finish_reason(), v1::FINISH_REASON_STOP);
}

TEST_F(TokenStreamTest, ReaderThatLetsTheOutboxFillLosesItsRequest) {
  MakeStream(/*max_outbox_tokens=*/3);
  Push("a");
  RunJobs();
  Push("bcd");
  EXPECT_THAT(engine_.cancelled, IsEmpty());
  Push("e");
  RunJobs();
  EXPECT_THAT(engine_.cancelled, ElementsAre(kStreamId));  // The reader is still reading its first response.
  Push("f");
  CompleteWrite();
  RunJobs();
  EXPECT_EQ(writer_.text(), "abcd");
  ASSERT_TRUE(writer_.status.has_value());
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(
      writer_.status->message(),
      "the client reads too slowly: 3 tokens wait for it, and the limit is 3 (--max-outbox-tokens for each sample); "
      "the request is over");
  EXPECT_EQ(RetryDelayMs(*writer_.status), std::nullopt);
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamTest, WriteUnderWayIsLimitedOnceGenerationHasEnded) {
  MakeStream();
  Push("a");
  RunJobs();
  Push("b");
  EXPECT_EQ(writer_.num_limits, 0);
  stream_->OnFinished(LastSample(FinishReason::kLength));
  EXPECT_EQ(writer_.num_limits, 1);
  CompleteWrite();
  RunJobs();
  EXPECT_EQ(writer_.status, absl::OkStatus());
  EXPECT_EQ(writer_.num_limits, 1);
}

TEST_F(TokenStreamTest, SlowReadersLastWriteIsLimited) {
  MakeStream(/*max_outbox_tokens=*/1);
  Push("a");
  RunJobs();
  Push("b");
  EXPECT_EQ(writer_.num_limits, 0);
  Push("c");
  EXPECT_EQ(writer_.num_limits, 1);
}

TEST_F(TokenStreamTest, ClientThatLeavesDuringAWriteEndsTheCallAfterIt) {
  MakeStream();
  Push("a");
  RunJobs();
  stream_->Close(kReaderId);
  Push("b");
  RunJobs();
  EXPECT_THAT(engine_.cancelled, ElementsAre(kStreamId));
  EXPECT_FALSE(writer_.status.has_value());
  CompleteWrite(/*ok=*/false);
  RunJobs();
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(writer_.text(), "a");
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamTest, ClientThatLeavesWhileNothingGoesOnEndsTheCall) {
  MakeStream();
  stream_->Close(kReaderId);
  stream_->Close(kReaderId);
  RunJobs();
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(num_ends_, 1);
  EXPECT_EQ(end_.finish_reason, "CANCELLED");
}

TEST_F(TokenStreamTest, FailedWriteEndsTheRequest) {
  MakeStream();
  Push("a");
  RunJobs();
  CompleteWrite(/*ok=*/false);
  RunJobs();
  EXPECT_THAT(engine_.cancelled, ElementsAre(kStreamId));
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kCancelled);
}

TEST_F(TokenStreamTest, FailureIsTheStatusOfTheCall) {
  MakeStream();
  stream_->OnFailed(absl::UnavailableError("the worker is gone"));
  RunJobs();
  EXPECT_EQ(writer_.status, absl::UnavailableError("the worker is gone"));
  EXPECT_THAT(writer_.responses, IsEmpty());
}

TEST_F(TokenStreamTest, AbortAfterTheEndFindsNothing) {
  MakeStream();
  Push("a");
  stream_->OnFinished(LastSample(FinishReason::kLength));
  EXPECT_FALSE(stream_->Abort());
  RunJobs();
  EXPECT_FALSE(stream_->Abort());
  EXPECT_THAT(engine_.cancelled, IsEmpty());
}

TEST_F(TokenStreamTest, TokensBehindAStopStringAreNeverSent) {
  request_.mutable_stopping()->add_stop("XY");
  MakeStream();
  Push("abXYcd");
  stream_->OnFinished(LastSample(FinishReason::kLength));
  RunJobs();
  EXPECT_EQ(writer_.text(), "ab");
  EXPECT_THAT(writer_.tokens(), SizeIs(4));
  EXPECT_EQ(writer_.responses.back().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(writer_.responses.back().stop(), "XY");
  EXPECT_EQ(writer_.responses.back().usage().completion_tokens(), 4u);
}

TEST_F(TokenStreamTest, TheEngineLearnsWhetherAStopStringOrTheClientEndedTheRequest) {
  request_.mutable_stopping()->add_stop("XY");
  MakeStream();
  Push("abXYcd");
  RunJobs();
  writer_ = ManualWriter();
  MakeStream();
  stream_->Close(kReaderId);
  RunJobs();
  EXPECT_THAT(engine_.reasons, ElementsAre(FinishReason::kStopToken, FinishReason::kCancelled));
}

TEST_F(TokenStreamTest, StopStringMayBeShown) {
  request_.mutable_stopping()->add_stop("XY");
  request_.mutable_stopping()->set_include_stop(true);
  MakeStream();
  Push("abXYcd");
  RunJobs();
  EXPECT_EQ(writer_.text(), "abXY");
}

TEST_F(TokenStreamTest, StopStringsAreNotSoughtBeforeMinTokens) {
  request_.mutable_stopping()->add_stop("X");
  request_.mutable_stopping()->set_min_tokens(3);
  MakeStream();
  Push("aXbXc");
  RunJobs();
  EXPECT_EQ(writer_.text(), "aXb");
}

TEST_F(TokenStreamTest, LengthShowsWhatWasHeldBack) {
  request_.mutable_stopping()->add_stop("XYZ");
  MakeStream();
  Push("abXY");
  RunJobs();
  EXPECT_EQ(writer_.text(), "ab");
  stream_->OnFinished(LastSample(FinishReason::kLength));
  CompleteWrite();
  RunJobs();
  EXPECT_EQ(writer_.text(), "abXY");
}

TEST_F(TokenStreamTest, CharacterIsShownWhenItsLastByteComes) {
  MakeStream();
  Push("\xc3");
  RunJobs();
  EXPECT_EQ(writer_.responses[0].text_delta(), "");
  Push("\xa9");
  CompleteWrite();
  RunJobs();
  EXPECT_EQ(writer_.responses[1].text_delta(), "\xc3\xa9");
}

TEST_F(TokenStreamTest, CharacterThatThePromptBeginsIsCompleted) {
  request_.mutable_token_ids()->add_ids(ToyTokenizer::Byte('\xc3'));
  MakeStream();
  Push("\xa9!");
  RunJobs();
  EXPECT_EQ(writer_.text(), "\xc3\xa9!");
}

TEST_F(TokenStreamTest, BrokenEndOfThePromptIsNotGeneratedText) {
  request_.mutable_token_ids()->add_ids(ToyTokenizer::Byte('\xc3'));
  MakeStream();
  Push("a");
  RunJobs();
  EXPECT_EQ(writer_.text(), "a");
}

TEST_F(TokenStreamTest, StreamIsFreeWhenItsCallIsOver) {
  MakeStream();
  Push("a");
  stream_->OnFinished(LastSample(FinishReason::kLength));
  const std::weak_ptr<TokenStream> weak = stream_;
  RunJobs();
  stream_.reset();
  EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace quire
