// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "kv_manager/requests/token_stream.h"
#include "tests/kv_manager/requests/fake_engine.h"
#include "tests/kv_manager/requests/token_stream_harness.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"
#include "tests/random.h"

// Tests that the output of a stream does not depend on when its threads run, or on where its text is divided.

namespace quire {
namespace {

using TokenStreamTimingTest = TokenStreamTest;

constexpr TokenId kEos = ToyTokenizer::kEos;

// A client that runs on other threads.
class ThreadedWriter : public ResponseWriter {
 public:
  void WriteResponse(const v1::GenerateResponse* response) override {
    Note(response);
    network.Schedule([this] { stream->OnWritten(kReaderId, true); });
  }
  void LimitWrite() override {}
  void EndCall(const v1::GenerateResponse* response, const absl::Status& status) override {
    if (response != nullptr) Note(response);
    end.set_value(status);  // Throws an exception if the call ends twice.
  }

  std::shared_ptr<TokenStream> stream;
  std::promise<absl::Status> end;
  std::vector<TokenId> tokens;
  std::string text;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  ThreadPool network{1};

 private:
  void Note(const v1::GenerateResponse* response) {
    tokens.insert(tokens.end(), response->token_ids().begin(), response->token_ids().end());
    text += response->text_delta();
    finish_reason = response->finish_reason();
  }
};

TEST_F(TokenStreamTimingTest, ThreadsMayMeetInAnyOrder) {
  constexpr int kTokens = 200;
  const auto valid = ValidateGenerate(request_, *model_, RequestLimits(), /*drawn_seed=*/1);
  ASSERT_TRUE(valid.ok());
  const int prompt_tokens = static_cast<int>(valid->request.prompt.size());
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    FakeEngine engine(model_);
    ThreadedWriter writer;
    std::atomic<int> num_ends = 0;
    ThreadPool output(2);
    const auto run_later = [&](std::function<void()> job) { output.Schedule(std::move(job)); };
    writer.stream = std::make_shared<TokenStream>(
        TokenStream::Environment{.engine = &engine,
                                 .run_later = run_later,
                                 .on_end = [&](const StreamEnd&) { ++num_ends; },
                                 .max_outbox_tokens = kTokens},
        kStreamId, ResponseSet(model_, "name", *valid), StreamReader{&writer, run_later, kReaderId});
    std::thread step_loop([&] {
      for (int i = 0; i < kTokens; ++i) {
        ScoredToken token;
        token.token = ToyTokenizer::Byte(static_cast<char>('a' + i % 26));
        writer.stream->OnToken(0, prompt_tokens + i, token);
      }
      writer.stream->OnFinished(LastSample(FinishReason::kLength));
    });
    bool was_aborted = false;
    std::thread other([&] {
      if (round % 3 == 1) was_aborted = writer.stream->Abort();
      if (round % 3 == 2) writer.stream->Close(kReaderId);
    });
    const absl::Status status = writer.end.get_future().get();
    step_loop.join();
    other.join();

    EXPECT_EQ(num_ends, 1);
    EXPECT_LE(writer.tokens.size(), static_cast<size_t>(kTokens));
    for (size_t i = 0; i < writer.tokens.size(); ++i) {
      ASSERT_EQ(writer.tokens[i], ToyTokenizer::Byte(static_cast<char>('a' + i % 26)));
    }
    EXPECT_EQ(writer.text.size(), writer.tokens.size());
    if (round % 3 == 2) {
      EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    } else {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(writer.finish_reason, was_aborted ? v1::FINISH_REASON_ABORT : v1::FINISH_REASON_LENGTH);
      EXPECT_TRUE(was_aborted || writer.tokens.size() == kTokens);
    }
  }
}

// The expected output of a request: decode everything, then look for the first stop string.
struct Expected {
  std::string text;
  size_t num_tokens = 0;
  std::string stop;
};

Expected Reference(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens,
                   const std::vector<std::string>& stops, int min_tokens, bool include_stop) {
  const bool has_eos = !tokens.empty() && tokens.back() == kEos;
  std::vector<TokenId> shown = tokens;
  if (has_eos && !include_stop) shown.pop_back();
  const std::string whole = tokenizer.Decode(shown, /*skip_special_tokens=*/true);
  // ends[i] is the number of bytes of text that the first i tokens complete.
  std::vector<size_t> ends = {0};
  std::string so_far;
  auto stream = tokenizer.NewDecodeStream(true);
  for (TokenId token : shown) {
    stream->Push(token, &so_far);
    ends.push_back(so_far.size());
  }
  if (shown.size() < tokens.size()) ends.push_back(so_far.size());

  for (size_t end = 1; end <= whole.size(); ++end) {
    // The index of the token that completes byte `end`, or the end of the sequence.
    const size_t num_tokens =
        std::min<size_t>(std::lower_bound(ends.begin(), ends.end(), end) - ends.begin(), tokens.size());
    if (static_cast<int>(num_tokens) < min_tokens) continue;
    std::string longest;
    for (const std::string& stop : stops) {
      const bool matches = end >= stop.size() && whole.compare(end - stop.size(), stop.size(), stop) == 0;
      if (matches && stop.size() > longest.size()) longest = stop;
    }
    if (longest.empty()) continue;
    return {whole.substr(0, include_stop ? end : end - longest.size()), num_tokens, longest};
  }
  return {whole, tokens.size(), ""};
}

TEST_F(TokenStreamTimingTest, AnyTimingGivesTheTextOfTheReference) {
  model_ = ToyModel({"ab", "abc", "ca", "\xc3\xa9", "\xa9", "b\xc3", " "});
  const ToyTokenizer& tokenizer = static_cast<const ToyTokenizer&>(*model_->tokenizer);
  const std::vector<std::string> alphabet = {"a", "b", "c", "\xc3\xa9"};
  int num_stopped = 0;
  for (int seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<std::string> stops;
    for (int i = random.Below(4); i > 0; --i) {
      std::string stop;
      for (int j = random.Below(4); j >= 0; --j) stop += alphabet[random.Below(4)];
      stops.push_back(stop);
    }
    const int min_tokens = random.OneIn(2) ? 0 : random.Below(8);
    const bool include_stop = random.OneIn(2);
    const bool ends_by_eos = random.OneIn(2);
    std::vector<TokenId> tokens;
    const std::vector<TokenId> choice = {ToyTokenizer::Byte('a'),
                                         ToyTokenizer::Byte('b'),
                                         ToyTokenizer::Byte('c'),
                                         ToyTokenizer::Byte('\xc3'),
                                         ToyTokenizer::Byte('\xa9'),
                                         258,
                                         259,
                                         260,
                                         261,
                                         262,
                                         263};
    for (int i = min_tokens + random.Below(12); i > 0; --i) tokens.push_back(choice[random.Below(choice.size())]);
    tokens.push_back(ends_by_eos ? kEos : choice[0]);
    const Expected expected = Reference(tokenizer, tokens, stops, min_tokens, include_stop);

    request_.clear_stopping();
    for (const std::string& stop : stops) request_.mutable_stopping()->add_stop(stop);
    request_.mutable_stopping()->set_max_tokens(40);
    request_.mutable_stopping()->set_min_tokens(min_tokens);
    request_.mutable_stopping()->set_include_stop(include_stop);
    writer_ = ManualWriter();
    num_ends_ = 0;
    MakeStream();
    const auto let_time_pass = [&] {
      if (random.OneIn(2)) RunJobs();
      if (writer_.is_writing && random.OneIn(2)) CompleteWrite();
      ASSERT_EQ(writer_.text(), expected.text.substr(0, writer_.text().size()));
    };
    for (TokenId token : tokens) {
      PushToken(token);
      let_time_pass();
    }
    stream_->OnFinished(LastSample(ends_by_eos ? FinishReason::kStopToken : FinishReason::kLength));
    while (!writer_.status.has_value()) let_time_pass();
    RunJobs();

    ASSERT_EQ(writer_.text(), expected.text);
    ASSERT_EQ(writer_.tokens(), std::vector<TokenId>(tokens.begin(), tokens.begin() + expected.num_tokens));
    const v1::GenerateResponse& last = writer_.responses.back();
    ASSERT_EQ(last.stop(), expected.stop);
    ASSERT_EQ(last.usage().completion_tokens(), expected.num_tokens);
    ASSERT_EQ(last.finish_reason(),
              expected.stop.empty() && !ends_by_eos ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP);
    ASSERT_EQ(num_ends_, 1);
    num_stopped += !expected.stop.empty();
  }
  EXPECT_GT(num_stopped, 500);
  EXPECT_LT(num_stopped, 2500);
}

}  // namespace
}  // namespace quire
