#include "kv_manager/token_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kv_manager/request_validation.h"
#include "kv_manager/rpc_status.h"
#include "kv_manager/thread_pool.h"
#include "tests/kv_manager/service_harness.h"
#include "tests/kv_manager/toy_tokenizer.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr TokenId kEos = ToyTokenizer::kEos;
constexpr RequestId kId{7};

// Notes what was cancelled.
class CancelRecorder : public Engine {
 public:
  absl::Status Submit(Request, std::shared_ptr<RequestSink>) override { return absl::UnimplementedError("no"); }
  void Cancel(RequestId request) override { cancelled.push_back(request); }
  std::shared_ptr<const ServedModel> model() const override { return nullptr; }

  std::vector<RequestId> cancelled;
};

// A client whose reading the test decides: a write stays under way until CompleteWrite.
class ManualWriter : public ResponseWriter {
 public:
  void WriteResponse(const v1::GenerateResponse* response) override {
    EXPECT_FALSE(is_writing);
    EXPECT_FALSE(status.has_value());
    is_writing = true;
    responses.push_back(*response);
  }
  void EndCall(const v1::GenerateResponse* response, const absl::Status& final_status) override {
    EXPECT_FALSE(is_writing);
    EXPECT_FALSE(status.has_value());
    if (response != nullptr) responses.push_back(*response);
    status = final_status;
  }

  std::string text() const {
    std::string text;
    for (const auto& response : responses) text += response.text_delta();
    return text;
  }
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> tokens;
    for (const auto& r : responses) tokens.insert(tokens.end(), r.token_ids().begin(), r.token_ids().end());
    return tokens;
  }

  std::vector<v1::GenerateResponse> responses;
  bool is_writing = false;
  std::optional<absl::Status> status;
};

// One stream in a world of one thread: jobs wait until RunJobs.
class TokenStreamTest : public ::testing::Test {
 protected:
  TokenStreamTest() : model_(ToyModel()) { request_.set_text("p"); }

  TokenStream* MakeStream(size_t max_outbox_tokens = 100) {
    auto valid = ValidateGenerate(request_, *model_, RequestLimits(), /*drawn_seed=*/1);
    EXPECT_TRUE(valid.ok()) << valid.status();
    prompt_tokens_ = static_cast<int>(valid->request.prompt.size());
    stream_ = std::make_shared<TokenStream>(
        TokenStream::Environment{&engine_, [this](std::function<void()> job) { jobs_.push_back(std::move(job)); },
                                 [this] { ++num_ends_; }, max_outbox_tokens},
        kId, ResponseBuilder(model_, "name", *valid), &writer_);
    return stream_.get();
  }

  void RunJobs() {
    while (!jobs_.empty()) {
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      job();
    }
  }

  void CompleteWrite(bool ok = true) {
    writer_.is_writing = false;
    stream_->OnWritten(ok);
  }

  void Push(const std::string& bytes) {
    for (char c : bytes) PushToken(ToyTokenizer::Byte(c));
  }
  void PushToken(TokenId token) {
    ScoredToken scored;
    scored.token = token;
    stream_->OnToken(0, prompt_tokens_ + num_tokens_++, scored);
  }

  std::shared_ptr<ServedModel> model_;
  v1::GenerateRequest request_;
  CancelRecorder engine_;
  ManualWriter writer_;
  std::deque<std::function<void()>> jobs_;
  std::shared_ptr<TokenStream> stream_;
  int prompt_tokens_ = 0;
  int num_tokens_ = 0;
  int num_ends_ = 0;
};

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
  stream_->OnStarted();
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
  stream_->OnFinished(0, FinishReason::kLength);
  RunJobs();
  ASSERT_THAT(writer_.responses, SizeIs(1));
  EXPECT_EQ(writer_.responses[0].finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(writer_.status, absl::OkStatus());
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamTest, StopTokenIsKnownBeforeTheEndArrives) {
  MakeStream();
  Push("a");
  PushToken(kEos);
  RunJobs();
  stream_->OnFinished(0, FinishReason::kStopToken);
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
  EXPECT_THAT(engine_.cancelled, ElementsAre(kId));  // Though the reader still reads its first response.
  Push("f");
  CompleteWrite();
  RunJobs();
  EXPECT_EQ(writer_.text(), "abcd");
  ASSERT_TRUE(writer_.status.has_value());
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(writer_.status->message(),
            "the client reads too slowly: 3 tokens wait for it, the limit; the request is over");
  EXPECT_EQ(RetryDelayMs(*writer_.status), std::nullopt);
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamTest, ClientThatLeavesDuringAWriteEndsTheCallAfterIt) {
  MakeStream();
  Push("a");
  RunJobs();
  stream_->Close();
  Push("b");
  RunJobs();
  EXPECT_THAT(engine_.cancelled, ElementsAre(kId));
  EXPECT_FALSE(writer_.status.has_value());
  CompleteWrite(/*ok=*/false);
  RunJobs();
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(writer_.text(), "a");
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamTest, ClientThatLeavesWhileNothingGoesOnEndsTheCall) {
  MakeStream();
  stream_->Close();
  stream_->Close();
  RunJobs();
  EXPECT_EQ(writer_.status->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(num_ends_, 1);
}

TEST_F(TokenStreamTest, FailedWriteEndsTheRequest) {
  MakeStream();
  Push("a");
  RunJobs();
  CompleteWrite(/*ok=*/false);
  RunJobs();
  EXPECT_THAT(engine_.cancelled, ElementsAre(kId));
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
  stream_->OnFinished(0, FinishReason::kLength);
  EXPECT_FALSE(stream_->Abort());
  RunJobs();
  EXPECT_FALSE(stream_->Abort());
  EXPECT_THAT(engine_.cancelled, IsEmpty());
}

TEST_F(TokenStreamTest, TokensBehindAStopStringAreNeverSent) {
  request_.mutable_stopping()->add_stop("XY");
  MakeStream();
  Push("abXYcd");
  stream_->OnFinished(0, FinishReason::kLength);
  RunJobs();
  EXPECT_EQ(writer_.text(), "ab");
  EXPECT_THAT(writer_.tokens(), SizeIs(4));
  EXPECT_EQ(writer_.responses.back().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(writer_.responses.back().stop(), "XY");
  EXPECT_EQ(writer_.responses.back().usage().completion_tokens(), 4u);
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
  stream_->OnFinished(0, FinishReason::kLength);
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
  stream_->OnFinished(0, FinishReason::kLength);
  const std::weak_ptr<TokenStream> weak = stream_;
  RunJobs();
  stream_.reset();
  EXPECT_TRUE(weak.expired());
}

// A client on threads of its own.
class ThreadedWriter : public ResponseWriter {
 public:
  void WriteResponse(const v1::GenerateResponse* response) override {
    Note(response);
    network.Schedule([this] { stream->OnWritten(true); });
  }
  void EndCall(const v1::GenerateResponse* response, const absl::Status& status) override {
    if (response != nullptr) Note(response);
    end.set_value(status);  // Throws when the call ends twice.
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

TEST_F(TokenStreamTest, ThreadsMayMeetInAnyOrder) {
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
    writer.stream = std::make_shared<TokenStream>(
        TokenStream::Environment{&engine, [&](std::function<void()> job) { output.Schedule(std::move(job)); },
                                 [&] { ++num_ends; }, kTokens},
        kId, ResponseBuilder(model_, "name", *valid), &writer);
    std::thread step_loop([&] {
      for (int i = 0; i < kTokens; ++i) {
        ScoredToken token;
        token.token = ToyTokenizer::Byte(static_cast<char>('a' + i % 26));
        writer.stream->OnToken(0, prompt_tokens + i, token);
      }
      writer.stream->OnFinished(0, FinishReason::kLength);
    });
    bool was_aborted = false;
    std::thread other([&] {
      if (round % 3 == 1) was_aborted = writer.stream->Abort();
      if (round % 3 == 2) writer.stream->Close();
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

// --- Any stop strings, any tokens, any timing.

class Random {
 public:
  explicit Random(int seed) : engine_(seed) {}
  int Below(int n) { return static_cast<int>(engine_() % n); }
  bool Flip() { return Below(2) == 0; }

 private:
  std::mt19937 engine_;
};

// What a request should give: decode everything, then look for the first stop.
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
  // ends[i]: bytes of text that the first i tokens complete.
  std::vector<size_t> ends = {0};
  std::string so_far;
  auto stream = tokenizer.NewDecodeStream(true);
  for (TokenId token : shown) {
    stream->Push(token, &so_far);
    ends.push_back(so_far.size());
  }
  if (shown.size() < tokens.size()) ends.push_back(so_far.size());

  for (size_t end = 1; end <= whole.size(); ++end) {
    // The token that completes byte `end`, or the end of the sequence.
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

TEST_F(TokenStreamTest, AnyTimingGivesTheTextOfTheReference) {
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
    const int min_tokens = random.Flip() ? 0 : random.Below(8);
    const bool include_stop = random.Flip();
    const bool ends_by_eos = random.Flip();
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
    num_tokens_ = 0;
    num_ends_ = 0;
    MakeStream();
    const auto let_time_pass = [&] {
      if (random.Flip()) RunJobs();
      if (writer_.is_writing && random.Flip()) CompleteWrite();
      ASSERT_EQ(writer_.text(), expected.text.substr(0, writer_.text().size()));
    };
    for (TokenId token : tokens) {
      PushToken(token);
      let_time_pass();
    }
    stream_->OnFinished(0, ends_by_eos ? FinishReason::kStopToken : FinishReason::kLength);
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
