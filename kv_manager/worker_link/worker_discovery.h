#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DISCOVERY_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DISCOVERY_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace quire {

// Every address behind `target`: dns:///name:port stands for all that the name has, sorted; anything else for itself.
// INVALID_ARGUMENT when the target is malformed, UNAVAILABLE when the name cannot be looked up.
absl::StatusOr<std::vector<std::string>> ResolveWorkers(absl::string_view target);

// Tells which workers there are: the fixed ones and, looked up again and again, those behind names. A name that cannot
// be looked up keeps the addresses it had.
class WorkerDiscovery {
 public:
  using OnWorkers = std::function<void(const std::vector<std::string>& addresses)>;

  // `on_workers` hears all addresses, in the order of the targets: here when no target is a name, else on a thread
  // after every look. A failure to look one up is logged when it begins, changes or ends.
  WorkerDiscovery(const std::vector<std::string>& targets, absl::Duration interval, OnWorkers on_workers);
  ~WorkerDiscovery();

 private:
  struct Target {
    std::string name;
    std::vector<std::string> addresses;  // As of the last look that succeeded.
    absl::Status error;                  // Of the last look.
  };

  void Look();
  void ThreadMain();

  std::vector<Target> targets_;
  const absl::Duration interval_;
  const OnWorkers on_workers_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DISCOVERY_H_
