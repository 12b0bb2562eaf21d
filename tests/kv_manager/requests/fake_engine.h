#ifndef QUIRE_TESTS_KV_MANAGER_REQUESTS_FAKE_ENGINE_H_
#define QUIRE_TESTS_KV_MANAGER_REQUESTS_FAKE_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kv_manager/engine/engine.h"

namespace quire {

// The end of a request of one sample.
inline Finished LastSample(FinishReason reason) {
  return {.request = RequestId{0}, .sample_index = 0, .reason = reason, .ends_request = true};
}

// An engine without workers: tokens are a function of prompt, seed and sample and come on a thread of its own, one for
// each sample of each running request per step; a beam search is its num_return first samples. Thread-safe; the
// settings are for before the first Submit.
class FakeEngine : public Engine {
 public:
  explicit FakeEngine(std::shared_ptr<const ServedModel> model);
  ~FakeEngine() override;

  // --- Settings.
  absl::Status submit_status;   // What Submit returns.
  absl::Status failure;         // Unless OK: how every request ends, instead of its first token.
  std::vector<TokenId> script;  // The tokens of every request; when they are out, or empty: a hash of the prompt.
  std::optional<FinishReason> ending;  // How requests end when the script is out.
  std::function<void()> before_submit;

  // From now on, only as many steps run as Step() is called.
  void Hold();
  void Step(int num_steps = 1);

  // --- Engine.
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) override;
  void Cancel(RequestId request, FinishReason reason) override;
  void CancelSample(RequestId request, int sample_index) override;
  std::shared_ptr<const ServedModel> model() const override { return model_; }

  // --- What happened.
  std::vector<Request> requests() const;      // Submitted.
  std::vector<RequestId> cancelled() const;   // Cancelled while they ran.
  void WaitUntilIdle();                       // Until no request runs.
  void WaitForRequests(size_t num_requests);  // Until so many were submitted.

 private:
  struct Live {
    Request request;
    std::shared_ptr<RequestSink> sink;
    std::set<int> samples = {};  // That go on. Guarded by mutex_.
    int num_tokens = 0;          // Of each of them.
  };

  void Run();
  // The next event of a request; true when it was the last. Called without the lock.
  bool Advance(Live* live);
  // The same for one sample.
  void AdvanceSample(Live* live, int sample_index);
  void FinishSample(Live* live, int sample_index, FinishReason reason);
  TokenId NextToken(const Live& live, int sample_index) const;

  const std::shared_ptr<const ServedModel> model_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::shared_ptr<Live>> live_;  // Guarded by mutex_, as all below but thread_.
  std::vector<Request> requests_;
  std::vector<RequestId> cancelled_;
  std::optional<int> steps_left_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_REQUESTS_FAKE_ENGINE_H_
