// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_ENGINE_RECORDING_SINK_H_
#define QUIRE_TESTS_KV_MANAGER_ENGINE_RECORDING_SINK_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "kv_manager/engine/request_sink.h"

namespace quire {

// Keeps the events of one request and checks their order: one start, then consecutive positions, then one end.
// Thread-safe.
class RecordingSink : public RequestSink {
 public:
  void OnStarted(int num_cached_tokens) override {
    const MutexLock lock(&mutex_);
    EXPECT_FALSE(started_);
    EXPECT_FALSE(has_ended());
    started_ = true;
    num_cached_tokens_ = num_cached_tokens;
  }
  void OnPinned(std::vector<int> num_tokens) override {
    const MutexLock lock(&mutex_);
    EXPECT_TRUE(started_);
    EXPECT_TRUE(tokens_.empty());
    EXPECT_FALSE(pinned_tokens_.has_value());
    pinned_tokens_ = std::move(num_tokens);
  }
  void OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) override {
    const MutexLock lock(&mutex_);
    EXPECT_EQ(first_position, 1 + static_cast<int>(prompt_logprobs_.size()));
    EXPECT_TRUE(tokens_.empty());
    for (ScoredToken& token : tokens) prompt_logprobs_.push_back(std::move(token));
  }
  void OnToken(int sample_index, int position, ScoredToken token) override {
    const MutexLock lock(&mutex_);
    EXPECT_TRUE(started_);
    EXPECT_FALSE(has_ended());
    EXPECT_EQ(sample_index, 0);
    if (tokens_.empty()) first_position_ = position;
    EXPECT_EQ(position, first_position_ + static_cast<int>(tokens_.size()));
    tokens_.push_back(token.token);
    changed_.NotifyAll();
  }
  void OnNumericsChanged(int sample_index, int position) override {
    const MutexLock lock(&mutex_);
    EXPECT_EQ(sample_index, 0);
    if (!tokens_.empty()) {
      EXPECT_EQ(position, first_position_ + static_cast<int>(tokens_.size()));
    }
    numerics_changes_.push_back(position);
  }
  void OnFinished(const Finished& finished) override {
    const MutexLock lock(&mutex_);
    EXPECT_FALSE(has_ended());
    EXPECT_EQ(finished.sample_index, 0);
    EXPECT_TRUE(finished.ends_request);
    reason_ = finished.reason;
    changed_.NotifyAll();
  }
  void OnFailed(absl::Status status) override {
    const MutexLock lock(&mutex_);
    EXPECT_FALSE(has_ended());
    EXPECT_FALSE(status.ok());
    failure_ = std::move(status);
    changed_.NotifyAll();
  }

  bool started() const {
    const MutexLock lock(&mutex_);
    return started_;
  }
  int num_cached_tokens() const {
    const MutexLock lock(&mutex_);
    return num_cached_tokens_;
  }
  // Nothing until the pins are made.
  std::optional<std::vector<int>> pinned_tokens() const {
    const MutexLock lock(&mutex_);
    return pinned_tokens_;
  }
  bool ended() const {
    const MutexLock lock(&mutex_);
    return has_ended();
  }
  std::vector<TokenId> tokens() const {
    const MutexLock lock(&mutex_);
    return tokens_;
  }
  std::vector<int> numerics_changes() const {
    const MutexLock lock(&mutex_);
    return numerics_changes_;
  }
  std::vector<ScoredToken> prompt_logprobs() const {
    const MutexLock lock(&mutex_);
    return prompt_logprobs_;
  }
  std::optional<FinishReason> reason() const {
    const MutexLock lock(&mutex_);
    return reason_;
  }
  absl::Status failure() const {
    const MutexLock lock(&mutex_);
    return failure_;
  }

  // Both wait for events that come on another thread.
  void WaitForTokens(size_t num_tokens) {
    const MutexLock lock(&mutex_);
    while (tokens_.size() < num_tokens && !has_ended()) changed_.Wait(&mutex_);
  }
  void WaitForEnd() {
    const MutexLock lock(&mutex_);
    while (!has_ended()) changed_.Wait(&mutex_);
  }

 private:
  bool has_ended() const QUIRE_REQUIRES(mutex_) { return reason_.has_value() || !failure_.ok(); }

  mutable Mutex mutex_;
  CondVar changed_;
  bool started_ QUIRE_GUARDED_BY(mutex_) = false;
  int num_cached_tokens_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::optional<std::vector<int>> pinned_tokens_ QUIRE_GUARDED_BY(mutex_);
  int first_position_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::vector<TokenId> tokens_ QUIRE_GUARDED_BY(mutex_);
  std::vector<ScoredToken> prompt_logprobs_ QUIRE_GUARDED_BY(mutex_);
  std::vector<int> numerics_changes_ QUIRE_GUARDED_BY(mutex_);  // Positions.
  std::optional<FinishReason> reason_ QUIRE_GUARDED_BY(mutex_);
  absl::Status failure_ QUIRE_GUARDED_BY(mutex_);
};

// Keeps only the error of a request, which may have many samples.
struct FailureSink : RequestSink {
  void OnStarted(int /*num_cached_tokens*/) override {}
  void OnPromptLogprobs(int /*first_position*/, std::vector<ScoredToken> /*tokens*/) override {}
  void OnToken(int /*sample_index*/, int /*position*/, ScoredToken /*token*/) override {}
  void OnNumericsChanged(int /*sample_index*/, int /*position*/) override {}
  void OnFinished(const Finished& /*finished*/) override {}
  void OnFailed(absl::Status status) override { failure = std::move(status); }

  absl::Status failure;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_ENGINE_RECORDING_SINK_H_
