// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_RECORDED_SESSION_H_
#define QUIRE_TESTS_WORKER_RECORDED_SESSION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "worker/step_session.h"

namespace quire {

// A session without a connection. It records what the loop sends, and tests wait for it. An answer is recorded as
// "opened EPOCH", "result STEP" or "draining", the end as the name of its status code.
class RecordedSession : public StepSession {
 public:
  void SendOpened(uint64_t epoch, std::vector<v1::InventoryChunk> inventory) override {
    {
      const MutexLock lock(&mutex_);
      inventory_ = std::move(inventory);
    }
    Add(absl::StrCat("opened ", epoch));
  }
  void SendResult(v1::StepResult result) override { Add(absl::StrCat("result ", result.step())); }
  void SendDraining() override { Add("draining"); }
  void End(const absl::Status& status) override {
    const MutexLock lock(&mutex_);
    if (has_ended_) return;
    has_ended_ = true;
    answers_.push_back(absl::StatusCodeToString(status.code()));
    changed_.NotifyAll();
  }

  // Waits until the session has `count` answers.
  void Await(size_t count) {
    const MutexLock lock(&mutex_);
    while (answers_.size() < count) changed_.Wait(&mutex_);
  }
  // Waits until the session is open, and returns the inventory.
  std::vector<v1::InventoryChunk> AwaitInventory() {
    Await(1);
    const MutexLock lock(&mutex_);
    return inventory_;
  }
  // Waits for the end of the session, and returns everything that was recorded.
  std::vector<std::string> AwaitEnd() {
    const MutexLock lock(&mutex_);
    while (!has_ended_) changed_.Wait(&mutex_);
    return answers_;
  }

 private:
  void Add(std::string answer) {
    const MutexLock lock(&mutex_);
    if (has_ended_) return;
    answers_.push_back(std::move(answer));
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  bool has_ended_ QUIRE_GUARDED_BY(mutex_) = false;
  std::vector<std::string> answers_ QUIRE_GUARDED_BY(mutex_);
  std::vector<v1::InventoryChunk> inventory_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_RECORDED_SESSION_H_
