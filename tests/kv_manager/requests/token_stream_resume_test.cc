// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_reason.h"
#include "tests/kv_manager/requests/fake_engine.h"
#include "tests/kv_manager/requests/token_stream_harness.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

// Tests streams that outlive their readers. Every test compares what all readers together have got with what one reader
// gets that is never interrupted.

namespace quire {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class CountingKeeper : public StreamKeeper {
 public:
  std::string MakeResumeToken() override { return absl::StrCat("token-", ++num_tokens); }
  bool Grow(int64_t bytes) override {
    if (on_grow != nullptr) on_grow();
    if (num_bytes + bytes > max_bytes) return false;
    num_bytes += bytes;
    return true;
  }
  void OnForgotten() override { ++num_forgotten; }
  void OnAttached() override { ++num_attached; }
  bool OnDetached() override {
    ++num_detached;
    return keeps;
  }
  void OnEnded(bool is_ok) override { ends.push_back(is_ok); }
  void OnClosed() override { ++num_closed; }

  int num_tokens = 0;
  int64_t num_bytes = 0;
  int64_t max_bytes = 1 << 20;
  bool keeps = true;
  int num_forgotten = 0;
  int num_attached = 0;
  int num_detached = 0;
  int num_closed = 0;
  std::vector<bool> ends;
  std::function<void()> on_grow;
};

// What a client has of a stream, in one message for each index: joined texts, tokens and logprobs. The resume token of
// each call is left out.
class Received {
 public:
  void Add(const v1::GenerateResponse& response) {
    v1::GenerateResponse& all = by_index_[response.index()];
    if (all.token_ids_size() > 0 && response.token_ids_size() > 0) {
      EXPECT_EQ(response.position(), all.position() + all.token_ids_size()) << "a token is lost or doubled";
    }
    const uint32_t position = all.token_ids_size() > 0 ? all.position() : response.position();
    const std::string text = all.text_delta() + response.text_delta();
    all.MergeFrom(response);
    all.set_position(position);
    all.set_text_delta(text);
    all.clear_resume_token();
  }
  google::protobuf::RepeatedPtrField<v1::ReceivedSample> Samples() const {
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> samples;
    for (const auto& [index, response] : by_index_) {
      v1::ReceivedSample* const sample = samples.Add();
      sample->set_index(index);
      sample->set_next_position(response.position() + response.token_ids_size());
      sample->set_has_finish(response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED);
      if (response.has_numerics_changed_at()) sample->set_numerics_changed_at(response.numerics_changed_at());
    }
    return samples;
  }
  std::string Text() const {
    std::string text;
    for (const auto& [index, response] : by_index_) text += absl::StrCat(response.DebugString(), "\n");
    return text;
  }

 private:
  std::map<uint32_t, v1::GenerateResponse> by_index_;
};

class TokenStreamResumeTest : public TokenStreamTest {
 protected:
  using Event = std::function<void()>;

  // A reader, with what it has to take over.
  struct Client {
    ManualWriter writer;
    uint64_t id;
    size_t num_read = 0;
  };

  TokenStream* MakeResumable(size_t max_outbox_tokens = 100) {
    keeper_ = counting_ = std::make_shared<CountingKeeper>();
    return MakeStream(max_outbox_tokens);
  }

  StreamReader ReaderOf(Client* client) {
    return {&client->writer, [this](std::function<void()> job) { jobs_.push_back(std::move(job)); }, client->id};
  }

  // The script of a stream with every kind of event. Several tokens of one sample make one step.
  std::vector<Event> Script(int num_samples, bool has_stop, FinishReason reason) {
    std::vector<Event> script;
    script.push_back([this] { stream_->OnStarted(1); });
    if (request_.has_prompt_logprobs()) {
      script.push_back([this] {
        stream_->OnPromptLogprobs(1, {ScoredToken{ToyTokenizer::Byte('p'), -2.0f, 3, {{ToyTokenizer::Byte('q'), -1}}}});
      });
    }
    // A character of two bytes, and what looks like the stop string "xyz" before it comes.
    const std::string text = "ab\xc3\xa9xyxxy" + std::string(has_stop ? "z" : "!") + "cd";
    for (size_t i = 0; i < text.size(); ++i) {
      for (int sample = 0; sample < num_samples; ++sample) {
        if (sample == 1 && i >= 4) continue;  // This one is shorter.
        script.push_back(
            [=, this] { PushLogprob(ToyTokenizer::Byte(text[i]), sample, -0.5f * static_cast<float>(i + sample)); });
        if (sample == 1 && i == 3) script.push_back([=, this] { Finish(1, FinishReason::kLength); });
      }
    }
    for (int sample = 0; sample < num_samples; ++sample) {
      if (sample == 1) continue;
      script.push_back([=, this] { Finish(sample, reason, sample == num_samples - 1 || num_samples == 2, -1.5f); });
    }
    return script;
  }

  void PushLogprob(TokenId token, int sample, float logprob) {
    ScoredToken scored{token, logprob, 2, {}};
    if (request_.logprobs() > 0) scored.top.push_back({ToyTokenizer::Byte('t'), -0.25f});
    stream_->OnToken(sample, prompt_tokens_ + num_tokens_[sample]++, scored);
  }

  static void Read(ManualWriter* writer, size_t* num_read, Received* received) {
    for (; *num_read < writer->responses.size(); ++*num_read) received->Add(writer->responses[*num_read]);
  }

  // Delivers everything to one reader.
  std::string Undisturbed(const std::vector<Event>& script) {
    keeper_ = nullptr;
    MakeStream();
    for (const Event& event : script) {
      event();
      CompleteAllWrites();
    }
    EXPECT_EQ(writer_.status, absl::OkStatus());
    Received received;
    size_t num_read = 0;
    Read(&writer_, &num_read, &received);
    writer_ = ManualWriter();
    num_ends_ = 0;
    return received.Text();
  }

  enum class Cut {
    kLeft,        // The client has left, and a new call comes later.
    kAway,        // The same, but some events come in between.
    kTakenOver,   // A new call comes while the old one seems to be there.
    kWriting,     // The same, while a response is being written that never arrives.
    kWriteFailed  // The write of a response has failed.
  };

  // Interrupts the stream after `num_events` events. Returns what the readers have received together.
  std::string Interrupted(const std::vector<Event>& script, size_t num_events, Cut cut) {
    MakeResumable();
    Received received;
    size_t num_read = 0;
    size_t next = 0;
    for (; next < num_events; ++next) {
      script[next]();
      RunJobs();
      if ((cut == Cut::kWriting || cut == Cut::kWriteFailed) && next + 1 == num_events && writer_.is_writing) break;
      Read(&writer_, &num_read, &received);
      CompleteAllWrites();
      Read(&writer_, &num_read, &received);
    }
    if (next < num_events) ++next;  // Its response has not arrived.
    Client second{.writer = {}, .id = 2};
    const bool was_writing = writer_.is_writing;
    writer_.is_writing = false;
    if (cut == Cut::kWriteFailed && was_writing) {
      stream_->OnWritten(kReaderId, false);
    } else if (cut == Cut::kLeft || cut == Cut::kAway || cut == Cut::kWriteFailed) {
      stream_->Close(kReaderId);
    }
    if (cut == Cut::kAway) {
      for (int i = 0; i < 3 && next < script.size(); ++i, ++next) {
        script[next]();
        RunJobs();
      }
    }
    EXPECT_EQ(stream_->Attach(ReaderOf(&second), received.Samples()), absl::OkStatus());
    RunJobs();
    if (was_writing) stream_->OnWritten(kReaderId, true);  // Comes too late to matter.
    size_t num_second = 0;
    const auto complete = [&] {
      RunJobs();
      while (second.writer.is_writing) {
        second.writer.is_writing = false;
        stream_->OnWritten(2, true);
        RunJobs();
      }
      Read(&second.writer, &num_second, &received);
    };
    complete();
    for (; next < script.size(); ++next) {
      script[next]();
      complete();
    }
    EXPECT_EQ(second.writer.status, absl::OkStatus());
    EXPECT_TRUE(writer_.status.has_value()) << "the old call never ends";
    EXPECT_EQ(num_ends_, 1);
    EXPECT_EQ(counting_->num_attached, 1);
    writer_ = ManualWriter();
    num_ends_ = 0;
    stream_->Drop(absl::CancelledError("the test is over"));
    RunJobs();
    return received.Text();
  }

  void TestAllCuts(int num_samples, bool has_stop, FinishReason reason = FinishReason::kLength) {
    TestAllCuts(Script(num_samples, has_stop, reason));
  }

  void TestAllCuts(const std::vector<Event>& script) {
    const std::string whole = Undisturbed(script);
    EXPECT_THAT(whole, testing::HasSubstr("usage"));
    for (const Cut cut : {Cut::kLeft, Cut::kAway, Cut::kTakenOver, Cut::kWriting, Cut::kWriteFailed}) {
      for (size_t i = 0; i <= script.size(); ++i) {
        ASSERT_EQ(Interrupted(script, i, cut), whole) << "cut " << static_cast<int>(cut) << " after " << i;
      }
    }
  }

  std::shared_ptr<CountingKeeper> counting_;
};

TEST_F(TokenStreamResumeTest, OneSampleIsJoinedAtEveryCut) {
  TestAllCuts(1, /*has_stop=*/false);
}

TEST_F(TokenStreamResumeTest, AStopStringIsFoundAtEveryCut) {
  request_.mutable_stopping()->add_stop("xyz");
  TestAllCuts(1, /*has_stop=*/true);
}

TEST_F(TokenStreamResumeTest, TextThatIsHeldBackIsSentOnce) {
  request_.mutable_stopping()->add_stop("xyz");
  TestAllCuts(1, /*has_stop=*/false);
}

TEST_F(TokenStreamResumeTest, LogprobsAndTheEchoOfThePromptAreSentOnce) {
  request_.set_logprobs(1);
  request_.set_prompt_logprobs(1);
  request_.set_echo(true);
  TestAllCuts(1, /*has_stop=*/false);
}

TEST_F(TokenStreamResumeTest, FourSamplesThatEndAtDifferentTimes) {
  request_.set_n(4);
  request_.set_logprobs(0);
  request_.mutable_stopping()->add_stop("xyz");
  TestAllCuts(4, /*has_stop=*/true);
}

TEST_F(TokenStreamResumeTest, TheBestSamplesArePickedOnce) {
  request_.set_n(2);
  request_.set_best_of(4);
  request_.set_logprobs(0);
  TestAllCuts(4, /*has_stop=*/false);
}

TEST_F(TokenStreamResumeTest, HypothesesOfABeamSearch) {
  request_.mutable_beam()->set_width(2);
  request_.mutable_beam()->set_num_return_sequences(2);
  TestAllCuts(2, /*has_stop=*/false);
}

TEST_F(TokenStreamResumeTest, AChangeOfTheNumericsIsToldOnceWithItsToken) {
  std::vector<Event> script = Script(2, /*has_stop=*/false, FinishReason::kLength);
  // The script has the start, and then a token of each sample in turn.
  script.insert(script.begin() + 5, [this] {
    stream_->OnNumericsChanged(0, prompt_tokens_ + 2);
    stream_->OnNumericsChanged(1, prompt_tokens_ + 2);
  });
  script.insert(script.begin() + 8, [this] { stream_->OnNumericsChanged(0, prompt_tokens_ + 3); });
  request_.set_n(2);
  TestAllCuts(script);
  const std::string whole = Undisturbed(script);
  const std::vector<std::string> changes =
      absl::StrSplit(whole, absl::StrCat("numerics_changed_at: ", prompt_tokens_ + 2, "\n"));
  EXPECT_THAT(changes, SizeIs(3)) << "one of each sample: " << whole;
}

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
    EXPECT_THAT(second.writer.responses, IsEmpty()) << "they would go on behind other tokens";
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
  EXPECT_THAT(engine_.cancelled, SizeIs(1)) << "the engine must not go on";
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
  EXPECT_THAT(writer_.status->message(), testing::HasSubstr("the request goes on"));
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
  has_known_name_ = false;
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
  EXPECT_FALSE(writer_.status.has_value()) << "the old call goes on";
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
