// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_LOOP_ASKER_H_
#define QUIRE_KV_MANAGER_ADMIN_LOOP_ASKER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "base/thread_pool.h"
#include "kv_manager/engine/loop_view.h"
#include "kv_manager/engine/manager_engine.h"

namespace quire {

// Asks step loops, and works on their answers on a thread of its own, so that the loops only copy what they are asked
// for. Thread-safe.
class LoopAsker {
 public:
  // `engine` is borrowed.
  explicit LoopAsker(ManagerEngine* engine) : engine_(engine) {}

  // Asks the step loop of the worker, or all of them when `worker` is empty (see ManagerEngine::AskAll). Then `done`
  // runs on the thread of this object, with NOT_FOUND when there is no such worker.
  void Ask(const std::string& worker, LoopQuestion question, std::function<void(const absl::Status&)> done);

  // Runs a job on the thread of this object.
  void Schedule(std::function<void()> job) { thread_.Schedule(std::move(job)); }

  ManagerEngine* engine() const { return engine_; }

 private:
  ManagerEngine* const engine_;
  ThreadPool thread_{1};
};

// The same status; NOT_FOUND gets the reason NO_SUCH_WORKER.
absl::Status WithWorkerReason(const absl::Status& status);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_LOOP_ASKER_H_
