// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_REQUESTS_TOKEN_STREAM_HARNESS_H_
#define QUIRE_TESTS_KV_MANAGER_REQUESTS_TOKEN_STREAM_HARNESS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/token_stream.h"
#include "tests/kv_manager/requests/toy_model.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

namespace quire {

inline constexpr RequestId kStreamId{7};
inline constexpr uint64_t kReaderId = 1;

// Records what was cancelled.
class CancelRecorder : public Engine {
 public:
  absl::Status Submit(Request, std::shared_ptr<RequestSink>) override { return absl::UnimplementedError("no"); }
  void Cancel(RequestId request, FinishReason reason) override {
    cancelled.push_back(request);
    reasons.push_back(reason);
  }
  void CancelSample(RequestId request, int sample_index) override {
    EXPECT_EQ(request, kStreamId);
    cancelled_samples.push_back(sample_index);
  }
  std::shared_ptr<const ServedModel> model() const override { return nullptr; }
  int64_t LongestSequence(GenerationId /*generation*/) const override { return 0; }

  std::vector<RequestId> cancelled;
  std::vector<FinishReason> reasons;  // The reasons for `cancelled`.
  std::vector<int> cancelled_samples;
};

// A client for which the test decides when it reads: a write is in progress until CompleteWrite is called.
class ManualWriter : public ResponseWriter {
 public:
  void WriteResponse(const v1::GenerateResponse* response) override {
    EXPECT_FALSE(is_writing);
    EXPECT_FALSE(status.has_value());
    is_writing = true;
    responses.push_back(*response);
  }
  void LimitWrite() override { ++num_limits; }
  void EndCall(const v1::GenerateResponse* response, const absl::Status& final_status) override {
    EXPECT_FALSE(is_writing);
    EXPECT_FALSE(status.has_value());
    if (response != nullptr) responses.push_back(*response);
    status = final_status;
  }

  std::string text(uint32_t index = 0) const {
    std::string text;
    for (const auto& response : responses) text += response.index() == index ? response.text_delta() : "";
    return text;
  }
  // The last response of a sample.
  const v1::GenerateResponse& last(uint32_t index) const {
    return *std::find_if(responses.rbegin(), responses.rend(), [&](const auto& r) { return r.index() == index; });
  }
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> tokens;
    for (const auto& r : responses) tokens.insert(tokens.end(), r.token_ids().begin(), r.token_ids().end());
    return tokens;
  }

  std::vector<v1::GenerateResponse> responses;
  bool is_writing = false;
  int num_limits = 0;
  std::optional<absl::Status> status;
};

// Tests of one stream in one thread: jobs wait until RunJobs is called.
class TokenStreamTest : public ::testing::Test {
 protected:
  TokenStreamTest() : model_(ToyModel()) { request_.set_text("p"); }

  TokenStream* MakeStream(size_t max_outbox_tokens = 100) {
    auto valid = ValidateGenerate(request_, *model_, RequestLimits(), /*drawn_seed=*/1);
    EXPECT_TRUE(valid.ok()) << valid.status();
    prompt_tokens_ = static_cast<int>(valid->request.prompt.size());
    const auto run_later = [this](std::function<void()> job) { jobs_.push_back(std::move(job)); };
    stream_ = std::make_shared<TokenStream>(TokenStream::Environment{.engine = &engine_,
                                                                     .run_later = run_later,
                                                                     .on_end =
                                                                         [this](const StreamEnd& end) {
                                                                           ++num_ends_;
                                                                           end_ = end;
                                                                         },
                                                                     .max_outbox_tokens = max_outbox_tokens,
                                                                     .keeper = keeper_,
                                                                     .is_reachable = is_reachable_,
                                                                     .num_promised_tokens = num_promised_tokens_},
                                            kStreamId, ResponseSet(model_, "name", *valid),
                                            StreamReader{&writer_, run_later, kReaderId});
    num_tokens_.assign(std::max(valid->request.num_samples, valid->num_returned), 0);
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
    stream_->OnWritten(kReaderId, ok);
  }

  void CompleteAllWrites() {
    RunJobs();
    while (writer_.is_writing) {
      CompleteWrite();
      RunJobs();
    }
  }

  void Push(const std::string& bytes, int sample_index = 0) {
    for (char c : bytes) PushToken(ToyTokenizer::Byte(c), sample_index);
  }
  void PushToken(TokenId token, int sample_index = 0, float logprob = 0) {
    ScoredToken scored;
    scored.token = token;
    scored.logprob = logprob;
    stream_->OnToken(sample_index, prompt_tokens_ + num_tokens_[sample_index]++, scored);
  }
  void Finish(int sample_index, FinishReason reason, bool ends_request = false, float score = 0) {
    stream_->OnFinished({kStreamId, sample_index, reason, ends_request, score});
  }

  std::shared_ptr<ServedModel> model_;
  v1::GenerateRequest request_;
  CancelRecorder engine_;
  ManualWriter writer_;
  std::deque<std::function<void()>> jobs_;
  std::shared_ptr<StreamKeeper> keeper_;  // Null: the stream is not resumable.
  int num_promised_tokens_ = 0;
  bool is_reachable_ = true;
  std::shared_ptr<TokenStream> stream_;
  int prompt_tokens_ = 0;
  std::vector<int> num_tokens_;  // By sample.
  int num_ends_ = 0;
  StreamEnd end_ = {};  // How the stream ended, the last time.
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_REQUESTS_TOKEN_STREAM_HARNESS_H_
