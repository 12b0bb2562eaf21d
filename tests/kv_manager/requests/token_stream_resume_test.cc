// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/status_reason.h"
#include "tests/kv_manager/requests/fake_engine.h"
#include "tests/kv_manager/requests/resumable_stream_harness.h"

// Tests streams that outlive their readers.

namespace quire {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

using TokenStreamResumeTest = ResumableStreamTest;

// The next manager has found the request on a worker that it had left for other numerics.
TEST_F(TokenStreamResumeTest, AStreamWhoseNumericsHaveNotChangedWhereTheClientWasToldIsNotItsStream) {
  num_promised_tokens_ = 10;
  for (const int other_change : {-1, 3}) {
    MakeResumable();
    stream_->Close(kReaderId);
    Client second{.writer = {}, .id = 2};
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;
    received.Add()->set_next_position(prompt_tokens_ + 4);
    received[0].set_numerics_changed_at(prompt_tokens_ + 2);
    // The manager tells the tokens after the client has come.
    ASSERT_EQ(stream_->Attach(ReaderOf(&second), received), absl::OkStatus());
    RunJobs();
    if (other_change >= 0) stream_->OnNumericsChanged(0, prompt_tokens_ + other_change);
    Push("abcdef");
    RunJobs();
    EXPECT_THAT(second.writer.responses, IsEmpty()) << "they would continue behind other tokens";
    ASSERT_TRUE(second.writer.status.has_value());
    ASSERT_TRUE(ReasonOf(*second.writer.status).has_value()) << *second.writer.status;
    EXPECT_EQ(ReasonOf(*second.writer.status)->word, "REQUEST_UNKNOWN");
    EXPECT_TRUE(stream_->has_ended());
    EXPECT_THAT(engine_.cancelled, SizeIs(1)) << "so its name is free";
    EXPECT_THAT(counting_->ends, std::vector<bool>{false});
    engine_.cancelled.clear();
    writer_.status.reset();
  }
}

// The stream of another client of the request continues to exist.
TEST_F(TokenStreamResumeTest, AnEndedStreamWhoseNumericsHaveNotChangedWhereTheClientWasToldIsNotItsStream) {
  for (const size_t max_outbox_tokens : {100, 1}) {  // The end is read with the tokens, or after them.
    MakeResumable(max_outbox_tokens);
    Push("a");
    CompleteAllWrites();
    stream_->Close(kReaderId);
    RunJobs();
    for (const char token : {'b', 'c', 'd', 'e', 'f'}) {
      Push(std::string(1, token));
      RunJobs();
    }
    Finish(0, FinishReason::kLength, /*ends_request=*/true);
    RunJobs();
    ASSERT_THAT(counting_->ends, std::vector<bool>{true});
    Client second{.writer = {}, .id = 2};
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;
    received.Add()->set_next_position(prompt_tokens_ + 4);
    received[0].set_numerics_changed_at(prompt_tokens_ + 2);
    ASSERT_EQ(stream_->Attach(ReaderOf(&second), received), absl::OkStatus());
    RunJobs();
    EXPECT_THAT(second.writer.responses, IsEmpty());
    ASSERT_TRUE(second.writer.status.has_value());
    ASSERT_TRUE(ReasonOf(*second.writer.status).has_value()) << *second.writer.status;
    EXPECT_EQ(ReasonOf(*second.writer.status)->word, "REQUEST_UNKNOWN");
    EXPECT_THAT(engine_.cancelled, IsEmpty());
    EXPECT_THAT(counting_->ends, (std::vector<bool>{true, true})) << "it is kept like before";

    Client third{.writer = {}, .id = 3};
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> true_received;
    true_received.Add()->set_next_position(prompt_tokens_ + 4);
    ASSERT_EQ(stream_->Attach(ReaderOf(&third), true_received), absl::OkStatus());
    RunJobs();
    while (third.writer.is_writing) {
      third.writer.is_writing = false;
      stream_->OnWritten(3, true);
      RunJobs();
    }
    EXPECT_EQ(third.writer.text(), "ef");
    EXPECT_EQ(third.writer.status, absl::OkStatus());
    writer_ = {};
  }
}

TEST_F(TokenStreamResumeTest, TheNumericsOfAClientChangeAtATokenThatItHas) {
  MakeResumable();
  Push("abcdef");
  CompleteAllWrites();
  for (const int num_generated : {-1, 4}) {
    Client second{.writer = {}, .id = 2};
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;
    received.Add()->set_next_position(prompt_tokens_ + 4);
    received[0].set_numerics_changed_at(prompt_tokens_ + num_generated);
    const absl::Status status = stream_->Attach(ReaderOf(&second), received);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "received[0].numerics_changed_at")) << status;
  }
}

TEST_F(TokenStreamResumeTest, EachCallGetsAResumeTokenInItsFirstResponse) {
  MakeResumable();
  Push("a");
  CompleteAllWrites();
  Push("b");
  CompleteAllWrites();
  ASSERT_THAT(writer_.responses, SizeIs(2));
  EXPECT_EQ(writer_.responses[0].resume_token(), "token-1");
  EXPECT_EQ(writer_.responses[1].resume_token(), "");
  Client second{.writer = {}, .id = 2};
  ASSERT_EQ(stream_->Attach(ReaderOf(&second), {}), absl::OkStatus());
  RunJobs();
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(*writer_.status)->word, "TAKEN_OVER");
  ASSERT_THAT(second.writer.responses, SizeIs(1));
  EXPECT_EQ(second.writer.responses[0].resume_token(), "token-2");
  EXPECT_EQ(second.writer.responses[0].text_delta(), "ab");
  second.writer.is_writing = false;
  stream_->Drop(absl::CancelledError("the test is over"));
  RunJobs();
}

TEST_F(TokenStreamResumeTest, AStopStringEndsARequestWithoutAClient) {
  request_.mutable_stopping()->add_stop("b");
  MakeResumable();
  stream_->Close(kReaderId);
  RunJobs();
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(stream_->has_ended());
  EXPECT_THAT(engine_.cancelled, IsEmpty());
  Push("abc");
  RunJobs();
  EXPECT_TRUE(stream_->has_ended());
  EXPECT_THAT(engine_.cancelled, SizeIs(1)) << "the engine must not continue";
  EXPECT_EQ(counting_->ends, std::vector<bool>{true});
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamResumeTest, AKeeperThatRefusesEndsTheRequest) {
  MakeResumable();
  counting_->keeps = false;
  Push("a");
  CompleteAllWrites();
  stream_->Close(kReaderId);
  RunJobs();
  EXPECT_TRUE(stream_->has_ended());
  EXPECT_THAT(engine_.cancelled, SizeIs(1));
  EXPECT_EQ(num_ends_, 1);
  Client second{.writer = {}, .id = 2};
  EXPECT_TRUE(absl::IsNotFound(stream_->Attach(ReaderOf(&second), {})));
}

TEST_F(TokenStreamResumeTest, AStreamThatCannotWaitGoesToAClientThatHasComeBack) {
  MakeResumable();
  counting_->keeps = false;
  Push("a");
  CompleteAllWrites();
  stream_->Close(kReaderId);
  Client second{.writer = {}, .id = 2};
  ASSERT_EQ(stream_->Attach(ReaderOf(&second), {}), absl::OkStatus());
  RunJobs();
  EXPECT_TRUE(writer_.status.has_value());
  EXPECT_FALSE(stream_->has_ended());
  EXPECT_EQ(second.writer.text(), "a");
  second.writer.is_writing = false;
  stream_->Drop(absl::CancelledError("the test is over"));
  RunJobs();
}

TEST_F(TokenStreamResumeTest, AbortEndsARequestWithoutAClient) {
  MakeResumable();
  Push("ab");
  stream_->Close(kReaderId);
  RunJobs();
  EXPECT_TRUE(stream_->Abort());
  RunJobs();
  Client second{.writer = {}, .id = 2};
  ASSERT_EQ(stream_->Attach(ReaderOf(&second), {}), absl::OkStatus());
  RunJobs();
  ASSERT_THAT(second.writer.responses, SizeIs(1));
  EXPECT_EQ(second.writer.responses[0].text_delta(), "ab");
  EXPECT_EQ(second.writer.responses[0].finish_reason(), v1::FINISH_REASON_ABORT);
  EXPECT_EQ(counting_->ends, std::vector<bool>({false, false})) << "its name is free for another try";
}

TEST_F(TokenStreamResumeTest, AnOlderCallThatComesLateDoesNotTakeTheStream) {
  MakeResumable();
  Push("a");
  CompleteAllWrites();
  Client newest{.writer = {}, .id = 3};
  ASSERT_EQ(stream_->Attach(ReaderOf(&newest), {}), absl::OkStatus());
  Client late{.writer = {}, .id = 2};
  EXPECT_TRUE(absl::IsAborted(stream_->Attach(ReaderOf(&late), {})));
  RunJobs();
  EXPECT_EQ(newest.writer.text(), "a");
  newest.writer.is_writing = false;
  stream_->OnWritten(3, true);
  EXPECT_TRUE(absl::IsAborted(stream_->Attach(ReaderOf(&late), {})));
  RunJobs();
  EXPECT_FALSE(newest.writer.status.has_value());
}

TEST_F(TokenStreamResumeTest, ARequestThatHasNotBegunEndsWithItsClientUnlessAnotherCallHasIt) {
  MakeResumable();
  EXPECT_TRUE(stream_->CloseIfAlone(kReaderId));
  Client late{.writer = {}, .id = 2};
  EXPECT_TRUE(absl::IsNotFound(stream_->Attach(ReaderOf(&late), {})));
  RunJobs();
  EXPECT_EQ(counting_->num_closed, 1);
  EXPECT_EQ(num_ends_, 1);
  EXPECT_TRUE(writer_.status.has_value());

  writer_ = ManualWriter();
  MakeResumable();
  Client second{.writer = {}, .id = 2};
  ASSERT_EQ(stream_->Attach(ReaderOf(&second), {}), absl::OkStatus());
  EXPECT_FALSE(stream_->CloseIfAlone(kReaderId));
  stream_->Close(kReaderId);
  RunJobs();
  Push("a");
  RunJobs();
  EXPECT_EQ(second.writer.text(), "a");
  EXPECT_FALSE(second.writer.status.has_value());
}

TEST_F(TokenStreamResumeTest, AFailedRequestGivesItsTokensAndThenTheError) {
  MakeResumable();
  Push("ab");
  stream_->Close(kReaderId);
  RunJobs();
  stream_->OnFailed(absl::DeadlineExceededError("too late"));
  RunJobs();
  EXPECT_EQ(counting_->ends, std::vector<bool>{false});
  Client second{.writer = {}, .id = 2};
  ASSERT_EQ(stream_->Attach(ReaderOf(&second), {}), absl::OkStatus());
  RunJobs();
  ASSERT_THAT(second.writer.responses, SizeIs(1));
  EXPECT_EQ(second.writer.responses[0].text_delta(), "ab");
  EXPECT_EQ(second.writer.status->code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(TokenStreamResumeTest, ASlowReaderLosesItsCallAndNotTheRequest) {
  MakeResumable(/*max_outbox_tokens=*/4);
  Push("a");
  RunJobs();
  ASSERT_TRUE(writer_.is_writing);
  Push("bcdef");
  writer_.is_writing = false;  // It lets the call end, although the client has not read.
  RunJobs();
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(writer_.status->message(), testing::HasSubstr("the request continues"));
  EXPECT_FALSE(stream_->has_ended());
  EXPECT_THAT(engine_.cancelled, IsEmpty());
  stream_->OnFinished(LastSample(FinishReason::kLength));
  RunJobs();
  Client second{.writer = {}, .id = 2};
  ASSERT_EQ(stream_->Attach(ReaderOf(&second), {}), absl::OkStatus());
  RunJobs();
  ASSERT_TRUE(second.writer.is_writing);
  EXPECT_EQ(second.writer.responses[0].token_ids_size(), 4) << "a response has at most max_outbox_tokens";
  second.writer.is_writing = false;
  stream_->OnWritten(2, true);
  RunJobs();
  EXPECT_EQ(second.writer.text(), "abcdef");
  EXPECT_EQ(second.writer.status, absl::OkStatus());
}

TEST_F(TokenStreamResumeTest, WithoutMemoryTheStreamGoesOnAndCannotBeResumed) {
  MakeResumable();
  counting_->max_bytes = 200;
  for (const char c : std::string("abcdefgh")) {
    Push(std::string(1, c));
    CompleteAllWrites();
  }
  EXPECT_EQ(counting_->num_forgotten, 1);
  EXPECT_FALSE(stream_->has_ended());
  EXPECT_EQ(writer_.text(), "abcdefgh");
  Client second{.writer = {}, .id = 2};
  EXPECT_TRUE(absl::IsNotFound(stream_->Attach(ReaderOf(&second), {})));
  stream_->Close(kReaderId);
  RunJobs();
  EXPECT_THAT(engine_.cancelled, SizeIs(1)) << "from then on the client's leaving ends the request";
}

TEST_F(TokenStreamResumeTest, ACallThatComesWhenThereIsNoMoreMemoryGetsTheStream) {
  MakeResumable();
  Push("a");
  CompleteAllWrites();
  counting_->max_bytes = 0;
  Client second{.writer = {}, .id = 2};
  counting_->on_grow = [&] {
    counting_->on_grow = nullptr;
    EXPECT_EQ(stream_->Attach(ReaderOf(&second), {}), absl::OkStatus());
  };
  Push("b");
  RunJobs();
  EXPECT_TRUE(absl::IsAborted(writer_.status.value()));
  const auto complete = [&] {
    while (second.writer.is_writing) {
      second.writer.is_writing = false;
      stream_->OnWritten(2, true);
      RunJobs();
    }
  };
  complete();
  EXPECT_EQ(counting_->num_forgotten, 1);
  Push("c");
  RunJobs();
  complete();
  EXPECT_EQ(second.writer.text(), "abc") << "each token is written once";
  stream_->OnFinished(LastSample(FinishReason::kLength));
  RunJobs();
  EXPECT_EQ(second.writer.status, absl::OkStatus());
  EXPECT_EQ(counting_->num_closed, 1);
}

TEST_F(TokenStreamResumeTest, WithoutMemoryAClientThatReadsTheRecordGetsAllOfItFirst) {
  MakeResumable(/*max_outbox_tokens=*/4);
  for (const char* tokens : {"abc", "def", "ghi"}) {
    Push(tokens);
    CompleteAllWrites();
  }
  counting_->max_bytes = 0;
  Client second{.writer = {}, .id = 2};
  ASSERT_EQ(stream_->Attach(ReaderOf(&second), {}), absl::OkStatus());
  RunJobs();
  ASSERT_TRUE(second.writer.is_writing);
  Push("jk");
  Finish(0, FinishReason::kLength, /*ends_request=*/true);
  while (second.writer.is_writing) {
    second.writer.is_writing = false;
    stream_->OnWritten(2, true);
    RunJobs();
  }
  EXPECT_EQ(second.writer.text(), "abcdefghijk");
  EXPECT_EQ(second.writer.status, absl::OkStatus());
  EXPECT_EQ(counting_->num_forgotten, 1);
  EXPECT_THAT(engine_.cancelled, IsEmpty());
}

TEST_F(TokenStreamResumeTest, ARequestThatNobodyCanFindEndsWithItsClient) {
  is_reachable_ = false;
  MakeResumable();
  stream_->Close(kReaderId);
  RunJobs();
  EXPECT_TRUE(stream_->has_ended()) << "the client has neither a name nor a token";
  writer_ = ManualWriter();
  MakeResumable();
  Push("a");
  CompleteAllWrites();
  stream_->Close(kReaderId);
  RunJobs();
  EXPECT_FALSE(stream_->has_ended());
}

TEST_F(TokenStreamResumeTest, AJobThatReadsALongRecordLetsOthersRun) {
  MakeResumable(/*max_outbox_tokens=*/1 << 20);
  counting_->max_bytes = 1 << 30;
  for (int i = 0; i < 10; ++i) {
    Push(std::string(3000, 'a'));
    CompleteAllWrites();
  }
  Client second{.writer = {}, .id = 2};
  google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;
  received.Add()->set_next_position(prompt_tokens_ + 30'000);
  ASSERT_EQ(stream_->Attach(ReaderOf(&second), received), absl::OkStatus());
  int num_jobs = 0;
  for (; !jobs_.empty(); ++num_jobs) {
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    job();
  }
  EXPECT_GE(num_jobs, 30'000 / 4096);
  Push("b");
  RunJobs();
  EXPECT_EQ(second.writer.text(), "b");
  second.writer.is_writing = false;
  stream_->OnWritten(2, true);
}

TEST_F(TokenStreamResumeTest, LateJobsDoNotLetTheOutboxGrowWithoutEnd) {
  MakeResumable(/*max_outbox_tokens=*/4);
  Push("abcdefghijklmnop");  // No job runs meanwhile.
  EXPECT_TRUE(stream_->has_ended());
  CompleteAllWrites();
  EXPECT_EQ(writer_.text(), "abcdefgh");
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(TokenStreamResumeTest, WithoutMemoryARequestWithoutAClientEnds) {
  MakeResumable();
  counting_->max_bytes = 200;
  stream_->Close(kReaderId);
  Push("abcdefgh");
  RunJobs();
  EXPECT_TRUE(stream_->has_ended());
  EXPECT_THAT(engine_.cancelled, SizeIs(1));
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamResumeTest, AClientCannotHaveWhatWasNotSent) {
  MakeResumable();
  Push("ab");
  CompleteAllWrites();
  const auto attach = [&](uint32_t index, uint32_t next_position) {
    Client second{.writer = {}, .id = 2};
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;
    for (int i = 0; i < 1 + (next_position == 0 ? 1 : 0); ++i) {
      received.Add()->set_index(index);
      received[i].set_next_position(next_position);
    }
    return stream_->Attach(ReaderOf(&second), received);
  };
  for (const absl::Status& status : {attach(0, prompt_tokens_ + 3), attach(1, prompt_tokens_), attach(0, 0)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_FALSE(writer_.status.has_value()) << "the old call continues";
}

// Otherwise a client with a mistake would wait for nothing, and learn of no error.
TEST_F(TokenStreamResumeTest, AClientCannotHaveTheEndOfASampleThatRuns) {
  request_.set_n(2);
  MakeResumable();
  Push("a");
  CompleteAllWrites();
  Client other{.writer = {}, .id = 2};
  const auto attach = [&](uint32_t index) {
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;
    received.Add()->set_index(index);
    received[0].set_next_position(prompt_tokens_);
    received[0].set_has_finish(true);
    return stream_->Attach(ReaderOf(&other), received);
  };
  const absl::Status refused = attach(1);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(refused.message(), "received[0].has_finish: is true, the end of index 1 was not sent");
  stream_->OnFinished(
      {.request = stream_->id(), .sample_index = 1, .reason = FinishReason::kLength, .ends_request = false});
  EXPECT_TRUE(absl::IsInvalidArgument(attach(0)));
  EXPECT_EQ(attach(1), absl::OkStatus());
  stream_->Drop(absl::CancelledError("the test is over"));
  RunJobs();
}

// A message of 16 MiB has room for eight million entries, and the step loop waits while they are checked.
TEST_F(TokenStreamResumeTest, EntriesBeyondOneForEachSampleAreRefusedWithoutALookAtThem) {
  request_.set_n(2);
  MakeResumable();
  Client second{.writer = {}, .id = 2};
  google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;
  for (int i = 0; i < 2; ++i) received.Add();
  EXPECT_EQ(stream_->Attach(ReaderOf(&second), received).message(), "received[1].index: is 0, as in another entry");
  received.Add();
  EXPECT_EQ(stream_->Attach(ReaderOf(&second), received).message(),
            "received: has 3 entries, at most 2 are allowed, one for each sample that the request returns");
}

}  // namespace
}  // namespace quire
