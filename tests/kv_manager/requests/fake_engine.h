// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_REQUESTS_FAKE_ENGINE_H_
#define QUIRE_TESTS_KV_MANAGER_REQUESTS_FAKE_ENGINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kv_manager/engine/engine.h"

namespace quire {

// The end of a request of one sample.
inline Finished LastSample(FinishReason reason) {
  return {.request = RequestId{0}, .sample_index = 0, .reason = reason, .ends_request = true};
}

// An engine without workers. Tokens are a function of prompt, seed and sample. A thread of the engine sends them, one
// per step for each sample of each running request. A beam search is treated as its first num_return samples.
// The embedding of a prompt is its number of tokens, its first token, its last one and -1.
// Thread-safe, but the settings must be made before the first Submit.
class FakeEngine : public Engine {
 public:
  explicit FakeEngine(std::shared_ptr<const ServedModel> model);
  ~FakeEngine() override;

  // --- Settings.
  absl::Status submit_status;          // If it is not OK, Submit returns it.
  absl::Status failure;                // If it is not OK, every request ends with it before its first token.
  std::vector<TokenId> script;         // The first tokens of every request. The others are hashes that end no request.
  std::optional<FinishReason> ending;  // How requests end at the end of the script.
  std::function<void()> before_submit;
  size_t max_running = std::numeric_limits<size_t>::max();        // Beyond this, Submit returns RESOURCE_EXHAUSTED.
  int64_t longest_sequence = 0;                                   // What LongestSequence returns.
  bool takes_newest_first = false;                                // The order of the requests in each step.
  std::function<std::shared_ptr<const ServedModel>()> model_now;  // If it is set, model() calls it.

  // From now on, steps run only when Step() is called.
  void Hold();
  void Step(int num_steps = 1);

  // --- Engine.
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) override;
  void Cancel(RequestId request, FinishReason reason) override;
  void CancelSample(RequestId request, int sample_index) override;
  std::shared_ptr<const ServedModel> model() const override { return model_now ? model_now() : model_; }
  int64_t LongestSequence(GenerationId /*generation*/) const override { return longest_sequence; }

  // --- Results.
  std::vector<Request> requests() const;      // The submitted requests.
  size_t most_running() const;                // The most requests that ran at the same time.
  std::vector<RequestId> cancelled() const;   // The requests that were cancelled while they ran.
  void WaitUntilIdle();                       // Waits until no request runs.
  void WaitForRequests(size_t num_requests);  // Waits until this number was submitted.

 private:
  struct Live {
    Request request;
    std::shared_ptr<RequestSink> sink;
    std::set<int> samples = {};  // The samples that have not ended. Guarded by the engine's mutex.
    int num_tokens = 0;          // The number of tokens that each of them has.
  };

  void Run();
  bool MayStep() const QUIRE_REQUIRES(mutex_);
  bool IsLive(const std::shared_ptr<Live>& live) const;
  // Sends the next event of a request. Returns true if it was the last one. Called without the lock.
  bool Advance(Live* live);
  // The same for one sample.
  void AdvanceSample(Live* live, int sample_index);
  void FinishSample(Live* live, int sample_index, FinishReason reason);
  TokenId NextToken(const Live& live, int sample_index) const;

  const std::shared_ptr<const ServedModel> model_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Live>> live_ QUIRE_GUARDED_BY(mutex_);
  std::vector<Request> requests_ QUIRE_GUARDED_BY(mutex_);
  std::vector<RequestId> cancelled_ QUIRE_GUARDED_BY(mutex_);
  size_t most_running_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::optional<int> steps_left_ QUIRE_GUARDED_BY(mutex_);
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_REQUESTS_FAKE_ENGINE_H_
