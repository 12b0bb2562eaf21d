#ifndef QUIRE_TESTS_KV_MANAGER_ENGINE_RECORDING_SINK_H_
#define QUIRE_TESTS_KV_MANAGER_ENGINE_RECORDING_SINK_H_

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kv_manager/engine/request_sink.h"

namespace quire {

// Keeps the events of one request and checks their order: one start, then consecutive positions, then one end.
// Thread-safe.
class RecordingSink : public RequestSink {
 public:
  void OnStarted(int /*num_cached_tokens*/) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(started_);
    EXPECT_FALSE(has_ended());
    started_ = true;
  }
  void OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(first_position, 1 + static_cast<int>(prompt_logprobs_.size()));
    EXPECT_TRUE(tokens_.empty());
    for (ScoredToken& token : tokens) prompt_logprobs_.push_back(std::move(token));
  }
  void OnToken(int sample_index, int position, ScoredToken token) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(started_);
    EXPECT_FALSE(has_ended());
    EXPECT_EQ(sample_index, 0);
    if (tokens_.empty()) first_position_ = position;
    EXPECT_EQ(position, first_position_ + static_cast<int>(tokens_.size()));
    tokens_.push_back(token.token);
    changed_.notify_all();
  }
  void OnFinished(const Finished& finished) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(has_ended());
    EXPECT_EQ(finished.sample_index, 0);
    EXPECT_TRUE(finished.ends_request);
    reason_ = finished.reason;
    changed_.notify_all();
  }
  void OnFailed(absl::Status status) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(has_ended());
    EXPECT_FALSE(status.ok());
    failure_ = std::move(status);
    changed_.notify_all();
  }

  bool started() const {
    const std::lock_guard lock(mutex_);
    return started_;
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return has_ended();
  }
  std::vector<TokenId> tokens() const {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  std::vector<ScoredToken> prompt_logprobs() const {
    const std::lock_guard lock(mutex_);
    return prompt_logprobs_;
  }
  std::optional<FinishReason> reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  absl::Status failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // Waits for events of another thread.
  void WaitForTokens(size_t num_tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_.size() >= num_tokens || has_ended(); });
  }
  void WaitForEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_ended(); });
  }

 private:
  bool has_ended() const { return reason_.has_value() || !failure_.ok(); }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  int first_position_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<ScoredToken> prompt_logprobs_;
  std::optional<FinishReason> reason_;
  absl::Status failure_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_ENGINE_RECORDING_SINK_H_
