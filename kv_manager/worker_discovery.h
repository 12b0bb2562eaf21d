#ifndef QUIRE_KV_MANAGER_WORKER_DISCOVERY_H_
#define QUIRE_KV_MANAGER_WORKER_DISCOVERY_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace quire {

// Every address behind `target`: dns:///name:port stands for all that the name has, sorted; anything else for itself.
// INVALID_ARGUMENT when the target is malformed, UNAVAILABLE when the name cannot be looked up.
absl::StatusOr<std::vector<std::string>> ResolveWorkers(absl::string_view target);

// Tells which workers there are: the fixed ones at once, those behind names as they appear. An address that a name has
// lost stays: a worker that restarts may come back to it.
class WorkerDiscovery {
 public:
  // `on_worker` is called for every address, for known ones again and again: first here, then on a thread.
  WorkerDiscovery(std::vector<std::string> targets, absl::Duration interval,
                  std::function<void(const std::string&)> on_worker);
  ~WorkerDiscovery();

 private:
  void Look();
  void ThreadMain();

  std::vector<std::string> names_;  // The targets that must be looked up.
  const absl::Duration interval_;
  const std::function<void(const std::string&)> on_worker_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_DISCOVERY_H_
