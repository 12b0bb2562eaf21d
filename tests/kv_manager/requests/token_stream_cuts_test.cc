// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/kv_manager/requests/received_responses.h"
#include "tests/kv_manager/requests/resumable_stream_harness.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

// Tests streams that are interrupted after each of their events. What all readers together have got is compared with
// what one reader gets that is never interrupted.

namespace quire {
namespace {

class TokenStreamCutsTest : public ResumableStreamTest {
 protected:
  using Event = std::function<void()>;

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

  static void Read(ManualWriter* writer, size_t* num_read, ReceivedResponses* received) {
    for (; *num_read < writer->responses.size(); ++*num_read) {
      EXPECT_TRUE(received->Add(writer->responses[*num_read])) << "a token is lost or doubled";
    }
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
    ReceivedResponses received;
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
    ReceivedResponses received;
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
};

TEST_F(TokenStreamCutsTest, OneSampleIsJoinedAtEveryCut) {
  TestAllCuts(1, /*has_stop=*/false);
}

TEST_F(TokenStreamCutsTest, AStopStringIsFoundAtEveryCut) {
  request_.mutable_stopping()->add_stop("xyz");
  TestAllCuts(1, /*has_stop=*/true);
}

TEST_F(TokenStreamCutsTest, TextThatIsHeldBackIsSentOnce) {
  request_.mutable_stopping()->add_stop("xyz");
  TestAllCuts(1, /*has_stop=*/false);
}

TEST_F(TokenStreamCutsTest, LogprobsAndTheEchoOfThePromptAreSentOnce) {
  request_.set_logprobs(1);
  request_.set_prompt_logprobs(1);
  request_.set_echo(true);
  TestAllCuts(1, /*has_stop=*/false);
}

TEST_F(TokenStreamCutsTest, FourSamplesThatEndAtDifferentTimes) {
  request_.set_n(4);
  request_.set_logprobs(0);
  request_.mutable_stopping()->add_stop("xyz");
  TestAllCuts(4, /*has_stop=*/true);
}

TEST_F(TokenStreamCutsTest, TheBestSamplesArePickedOnce) {
  request_.set_n(2);
  request_.set_best_of(4);
  request_.set_logprobs(0);
  TestAllCuts(4, /*has_stop=*/false);
}

TEST_F(TokenStreamCutsTest, HypothesesOfABeamSearch) {
  request_.mutable_beam()->set_width(2);
  request_.mutable_beam()->set_num_return_sequences(2);
  TestAllCuts(2, /*has_stop=*/false);
}

TEST_F(TokenStreamCutsTest, AChangeOfTheNumericsIsToldOnceWithItsToken) {
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
  EXPECT_THAT(changes, testing::SizeIs(3)) << "one of each sample: " << whole;
}

TEST_F(TokenStreamCutsTest, PinsAreToldOnceAtTheBeginningAndAtTheEnd) {
  request_.mutable_chat()->add_messages()->set_role("user");
  request_.mutable_chat()->mutable_messages(0)->set_content("hello");
  request_.add_pins()->set_num_messages(1);
  std::vector<Event> script = Script(1, /*has_stop=*/false, FinishReason::kLength);
  script.insert(script.begin() + 1, [this] { stream_->OnPinned({3}); });
  TestAllCuts(script);
  const std::string whole = Undisturbed(script);
  EXPECT_THAT(whole, testing::HasSubstr("prompt_usage"));
  EXPECT_THAT(std::vector<std::string>(absl::StrSplit(whole, "pinned_tokens: 3\n")), testing::SizeIs(3)) << whole;
}

}  // namespace
}  // namespace quire
