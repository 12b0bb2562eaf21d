// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/stream_sim.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/token_stream.h"
#include "tests/kv_manager/requests/received_responses.h"
#include "tests/kv_manager/requests/toy_model.h"
#include "tests/random.h"
#include "tests/sim/violation.h"

namespace quire {
namespace {

constexpr RequestId kRequest{7};
constexpr int kMaxEvents = 300;
constexpr int kNumCachedTokens = 1;
constexpr int64_t kManyBytes = int64_t{1} << 30;

const std::shared_ptr<const ServedModel>& SharedModel() {
  static const auto* const model = new std::shared_ptr<const ServedModel>(ToyModel());
  return *model;
}

// A call that has the stream, or waits for it.
struct Call : public ResponseWriter {
  explicit Call(uint64_t id) : id(id) {}

  void WriteResponse(const v1::GenerateResponse* response) override {
    if (is_writing) error = "a response is written while another one is";
    if (status.has_value()) error = "a response is written behind the end";
    is_writing = true;
    written = *response;
  }
  void LimitWrite() override {
    if (std::exchange(is_limited, true)) error = "a write is limited twice";
    if (status.has_value()) error = "a write is limited behind the end";
  }
  void EndCall(const v1::GenerateResponse* response, const absl::Status& end) override {
    if (status.has_value()) error = "a call ends twice";
    if (is_writing && response != nullptr) error = "a call ends with a response while another one is written";
    if (response != nullptr) last = *response;
    status = end;
  }

  const uint64_t id;
  bool has_left = false;  // Its client has.
  bool is_writing = false;
  bool is_limited = false;
  v1::GenerateResponse written;  // The response under way.
  std::optional<v1::GenerateResponse> last;
  std::optional<absl::Status> status;
  std::string error;
};

// The end of a stream, as its keeper hears of it.
struct Keeper : public StreamKeeper {
  std::string MakeResumeToken() override { return "token"; }
  bool Grow(int64_t num_bytes) override {
    on_grow();
    if (num_bytes > bytes_left) return false;
    bytes_left -= num_bytes;
    return true;
  }
  void OnForgotten() override { Note("forgotten", std::exchange(is_forgotten, true)); }
  void OnAttached() override {
    Note("attached", is_forgotten);
    is_attached = true;
  }
  bool OnDetached() override {
    Note("detached", !std::exchange(is_attached, false) || is_forgotten);
    return keeps;
  }
  void OnEnded(bool /*is_ok*/) override {
    Note("ended", is_forgotten);
    is_attached = false;
  }
  void OnClosed() override {
    Note("closed", false);
    is_closed = true;
  }

  void Note(const char* event, bool is_wrong) {
    if (is_wrong || is_closed) error = absl::StrCat("the keeper hears '", event, "' too late or twice");
  }

  std::function<void()> on_grow;
  int64_t bytes_left = kManyBytes;
  bool keeps = true;
  bool is_attached = true;
  bool is_forgotten = false;
  bool is_closed = false;
  std::string error;
};

class StreamSim : public Engine {
 public:
  explicit StreamSim(uint64_t seed) : random_(seed) {}

  absl::Status Run() {
    Draw();
    MakeStream(/*is_restored=*/false);
    for (int i = 0; i < kMaxEvents && !is_over_; ++i) {
      Happen();
      QUIRE_RETURN_IF_ERROR(Check());
    }
    Finish();
    QUIRE_RETURN_IF_ERROR(Check());
    return CheckEnd();
  }

  const std::string& events() const { return events_; }

  // Engine.
  absl::Status Submit(Request, std::shared_ptr<RequestSink>) override { return absl::UnimplementedError("no"); }
  void Cancel(RequestId, FinishReason) override { is_cancelled_ = true; }
  void CancelSample(RequestId, int sample_index) override {
    if (std::exchange(samples_[sample_index].is_cancelled, true)) error_ = "a sample is cancelled twice";
  }
  std::shared_ptr<const ServedModel> model() const override { return model_; }
  int64_t LongestSequence(GenerationId /*generation*/) const override { return 0; }

 private:
  struct Sample {
    std::vector<TokenId> tokens;  // All that the engine draws.
    int num_told = 0;
    bool is_cancelled = false;
    bool has_ended = false;
  };

  void Draw() {
    request_.set_text("p");
    request_.set_n(random_.Between(1, 3));
    if (random_.OneIn(4)) request_.set_best_of(request_.n() + 1);
    if (random_.OneIn(2)) request_.set_logprobs(0);
    for (int i = random_.Below(3); i > 0; --i) request_.mutable_stopping()->add_stop(DrawText(random_.Between(1, 3)));
    request_.mutable_stopping()->set_max_tokens(60);
    valid_ = *ValidateGenerate(request_, *model_, RequestLimits(), /*drawn_seed=*/1);
    samples_.resize(valid_.request.num_samples);
    for (Sample& sample : samples_) {
      for (const char c : DrawText(random_.Between(1, 30))) sample.tokens.push_back(ToyTokenizer::Byte(c));
    }
    is_resumable_ = !random_.OneIn(4);
    max_outbox_tokens_ = random_.Between(3, 12);
    has_little_memory_ = random_.OneIn(6);
    whole_ = Whole();
  }

  std::string DrawText(int length) {
    std::string text;
    for (int i = 0; i < length; ++i) text += "abc"[random_.Below(3)];
    return text;
  }

  // What a client gets that reads all in one call.
  std::string Whole() {
    ResponseSet responses(model_, "name", valid_);
    responses.SetCachedTokens(kNumCachedTokens);
    for (size_t i = 0; i < samples_.size(); ++i) {
      for (const TokenId token : samples_[i].tokens) responses.AddToken(static_cast<int>(i), Scored(token));
      responses.FinishSample({kRequest, static_cast<int>(i), FinishReason::kLength, false});
    }
    responses.End(/*is_whole=*/true);
    ReceivedResponses all;
    for (; responses.has_next(); responses.StartNext()) all.Add(WithoutUsage(*responses.Next(), &whole_usage_));
    return all.Text();
  }

  // Any sample may be the last one, which tells the usage.
  static v1::GenerateResponse WithoutUsage(v1::GenerateResponse response, std::string* usage) {
    if (response.has_usage()) *usage = response.usage().DebugString();
    response.clear_usage();
    return response;
  }

  static ScoredToken Scored(TokenId token) {
    return {.token = token, .logprob = -1.0f / static_cast<float>(token), .top = {}};
  }

  void MakeStream(bool is_restored) {
    keeper_ = is_resumable_ ? std::make_shared<Keeper>() : nullptr;
    if (keeper_ != nullptr && has_little_memory_) keeper_->bytes_left = random_.Below(2000);
    if (keeper_ != nullptr && random_.OneIn(20)) keeper_->keeps = false;
    if (keeper_ != nullptr) {
      keeper_->is_attached = !is_restored;
      // Another thread may bring a call while a job runs.
      keeper_->on_grow = [this] {
        if (random_.OneIn(30)) Attach();
      };
    }
    num_ends_ = 0;
    is_cancelled_ = false;
    is_full_ = false;
    has_told_end_ = false;
    has_started_ = false;
    for (Sample& sample : samples_) {
      sample.is_cancelled = false;
      sample.has_ended = false;
      sample.num_told = 0;
    }
    StreamReader reader;
    if (!is_restored) reader = ReaderOf(NewCall());
    stream_ = std::make_shared<TokenStream>(
        TokenStream::Environment{.engine = this,
                                 .run_later = [this](std::function<void()> job) { jobs_.push_back(std::move(job)); },
                                 .on_end = [this](const StreamEnd& /*end*/) { ++num_ends_; },
                                 .max_outbox_tokens = is_restored ? 1000 : max_outbox_tokens_,
                                 .keeper = keeper_,
                                 .num_promised_tokens = is_restored ? valid_.request.max_tokens : 0},
        kRequest, ResponseSet(model_, "name", valid_), std::move(reader));
  }

  Call* NewCall() {
    calls_.push_back(std::make_unique<Call>(calls_.size() + 1));
    return calls_.back().get();
  }

  StreamReader ReaderOf(Call* call) {
    return {.writer = call,
            .run_later = [this](std::function<void()> job) { jobs_.push_back(std::move(job)); },
            .id = call->id};
  }

  void Happen() {
    const int draw = random_.Below(100);
    if (draw < 35) return Tell();
    if (draw < 65) return RunJob();
    if (draw < 85) return EndWrite(/*ok=*/!random_.OneIn(30));
    if (draw < 89) return Leave();
    if (draw < 96) return Attach();
    if (draw < 97 && random_.OneIn(4)) return LoseManager();
    if (draw < 98 && random_.OneIn(20)) return Abort();
    if (draw < 99 && random_.OneIn(20)) return Fail();
    if (random_.OneIn(20)) return Drop();
  }

  // The engine tells the next token or the end of a sample.
  void Tell() {
    if (has_told_end_ || (is_cancelled_ && random_.OneIn(3))) return;
    events_ += 't';
    if (!std::exchange(has_started_, true)) return stream_->OnStarted(kNumCachedTokens);
    std::vector<int> running;
    for (size_t i = 0; i < samples_.size(); ++i) {
      const bool has_heard = samples_[i].is_cancelled && random_.OneIn(3);
      if (!samples_[i].has_ended && !has_heard) running.push_back(static_cast<int>(i));
    }
    if (running.empty()) return;
    const int index = running[random_.Below(static_cast<int>(running.size()))];
    Sample& sample = samples_[index];
    if (sample.num_told < static_cast<int>(sample.tokens.size())) {
      const TokenId token = sample.tokens[sample.num_told];
      const int position = static_cast<int>(valid_.request.prompt.size()) + sample.num_told++;
      const bool was_running = !stream_->has_ended();
      stream_->OnToken(index, position, Scored(token));
      is_full_ |= was_running && stream_->has_ended();
      return;
    }
    sample.has_ended = true;
    has_told_end_ = std::all_of(samples_.begin(), samples_.end(),
                                [](const Sample& other) { return other.has_ended || other.is_cancelled; });
    stream_->OnFinished({kRequest, index, FinishReason::kLength, has_told_end_});
  }

  void RunJob() {
    if (jobs_.empty()) return;
    events_ += 'j';
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    job();
    ReadEnds();
  }

  // A write of any call is over. It fails when the client has left.
  void EndWrite(bool ok) {
    for (const auto& call : calls_) {
      if (!call->is_writing) continue;
      ok = ok && !call->has_left;
      events_ += ok ? 'w' : 'W';
      call->is_writing = false;
      // A response may arrive although its write fails. What a call gets that has lost the stream is not read.
      const bool is_read = call == calls_.back() && !call->has_left;
      if (is_read && (ok || random_.OneIn(2))) Receive(call->written);
      if (is_read && !ok) has_client_ = false;
      call->has_left |= !ok;
      stream_->OnWritten(call->id, ok);
      return ReadEnds();
    }
  }

  // The client reads how its calls have ended.
  void ReadEnds() {
    Call& call = *calls_.back();
    if (!call.status.has_value()) return;
    has_client_ = false;
    if (call.last.has_value()) Receive(*std::exchange(call.last, std::nullopt));
    if (absl::IsCancelled(*call.status) && !call.has_left) error_ = "a call is cancelled, and its client is there";
    if (call.status->ok() && !has_told_end_ && !is_cancelled_) error_ = "the engine continues behind the end";
    was_ended_ |= absl::StrContains(call.status->message(), "the request is over");  // A slow reader.
    is_over_ = is_over_ || call.status->ok() || !is_resumable_ || was_ended_;
  }

  void Receive(const v1::GenerateResponse& response) {
    if (!received_.Add(WithoutUsage(response, &usage_))) error_ = "a token is lost or doubled";
  }

  void Leave() {
    if (!has_client_) return;
    events_ += 'l';
    has_client_ = false;
    calls_.back()->has_left = true;
    const bool cancels = random_.OneIn(20);
    stream_->Close(calls_.back()->id, cancels);
    was_ended_ |= cancels;
  }

  // A new call takes the stream over. The call before it may not have ended yet.
  void Attach() {
    if (!is_resumable_ || is_over_) return;
    events_ += 'a';
    const auto samples = received_.Samples();
    Call* const call = NewCall();
    const absl::Status status = stream_->Attach(ReaderOf(call), samples);
    if (status.ok()) {
      has_client_ = true;
      return;
    }
    call->status = status;
    has_client_ = false;
    if (!absl::IsNotFound(status)) error_ = absl::StrCat("a call is refused: ", status.ToString());
    if (!stream_->is_closed() && !keeper_->is_forgotten) error_ = "a stream that is kept is not found";
    is_over_ = true;
    stream_->Drop(status);
  }

  void LoseManager() {
    if (!is_resumable_) return;
    events_ += 'm';
    jobs_.clear();
    stream_ = nullptr;
    for (const auto& call : calls_) {
      call->is_writing = false;
      if (!call->status.has_value()) call->status = absl::UnavailableError("the manager is gone");
    }
    has_client_ = false;
    if (was_ended_) {
      is_over_ = true;
      return;
    }
    MakeStream(/*is_restored=*/true);
    for (int i = random_.Below(40); i > 0; --i) Tell();
  }

  void Abort() {
    events_ += 'A';
    was_ended_ = true;
    stream_->Abort();
  }
  void Fail() {
    if (has_told_end_) return;
    events_ += 'f';
    was_ended_ = has_told_end_ = true;
    stream_->OnFailed(absl::UnavailableError("the worker is gone"));
  }
  void Drop() {
    events_ += 'd';
    was_ended_ = true;
    stream_->Drop(absl::UnavailableError("dropped"));
  }

  // Everything comes to its end.
  void Finish() {
    for (int round = 0; round < 2000 && stream_ != nullptr; ++round) {
      if (!has_client_ && is_resumable_ && !is_over_ && jobs_.empty()) Attach();
      while (!jobs_.empty()) RunJob();
      EndWrite(/*ok=*/true);
      if (!is_over_) Tell();
      if (jobs_.empty() && is_over_) break;
    }
  }

  absl::Status Check() {
    if (!error_.empty()) return Violation(error_);
    if (keeper_ != nullptr && !keeper_->error.empty()) return Violation(keeper_->error);
    // A full outbox tells the engine in a job of its own.
    if (jobs_.size() > (is_full_ ? 2u : 1u)) return Violation("a stream has ", jobs_.size(), " jobs");
    if (num_ends_ > 1) return Violation("the end is reported twice");
    for (const auto& call : calls_) {
      if (!call->error.empty()) return Violation("call ", call->id, ": ", call->error);
    }
    return absl::OkStatus();
  }

  absl::Status CheckEnd() {
    if (stream_ == nullptr) return absl::OkStatus();
    const bool is_client_there = has_client_ && !calls_.back()->status.has_value();
    if (is_client_there) return Violation("a client waits for ever");
    for (const auto& call : calls_) {
      if (!call->status.has_value()) return Violation("call ", call->id, " never ends");
    }
    if (!stream_->has_ended()) return Violation("the stream does not end");
    if (num_ends_ != 1) return Violation("the end is reported ", num_ends_, " times");
    if (!has_told_end_ && !is_cancelled_) return Violation("the engine generates for nobody");
    if (!calls_.back()->status->ok() || was_ended_) return absl::OkStatus();
    const std::string all = received_.Text();
    const size_t same = std::mismatch(all.begin(), all.end(), whole_.begin(), whole_.end()).first - all.begin();
    if (all != whole_) {
      return Violation("the client has '", absl::CEscape(all.substr(same, 40)), "' instead of '",
                       absl::CEscape(whole_.substr(same, 40)), "' behind ", same, " bytes");
    }
    // A client that has the ends of other samples from an earlier call may get no usage.
    if (usage_ != whole_usage_ && calls_.size() == 1) return Violation("the usage is '", absl::CEscape(usage_), "'");
    return absl::OkStatus();
  }

  Random random_;
  const std::shared_ptr<const ServedModel> model_ = SharedModel();
  v1::GenerateRequest request_;
  ValidRequest valid_;
  std::vector<Sample> samples_;
  bool is_resumable_ = false;
  bool has_little_memory_ = false;
  size_t max_outbox_tokens_ = 0;
  std::string whole_;
  std::string whole_usage_;

  std::string events_;
  std::string error_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::shared_ptr<Keeper> keeper_;
  std::shared_ptr<TokenStream> stream_;
  ReceivedResponses received_;
  std::string usage_;
  int num_ends_ = 0;
  bool has_client_ = true;     // The last call is there.
  bool is_full_ = false;       // The outbox has ended the request.
  bool has_started_ = false;   // The engine has told so.
  bool has_told_end_ = false;  // The engine has told the end of the request.
  bool is_cancelled_ = false;  // The stream has cancelled the request.
  bool was_ended_ = false;     // Something else than its tokens ends the request.
  bool is_over_ = false;       // The client wants nothing more.
};

}  // namespace

absl::Status RunStreamScenario(uint64_t seed) {
  StreamSim sim(seed);
  const absl::Status status = sim.Run();
  if (status.ok()) return status;
  return Violation("the stream of the seed: ", status.message(), " (", sim.events(), ")");
}

}  // namespace quire
