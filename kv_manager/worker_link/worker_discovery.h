// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DISCOVERY_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DISCOVERY_H_

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace quire {

// Returns all addresses of `target`. For dns:///name:port these are the addresses of the name, sorted; any other target
// is an address itself.
// INVALID_ARGUMENT when the target is malformed, UNAVAILABLE when the name cannot be looked up.
absl::StatusOr<std::vector<std::string>> ResolveWorkers(absl::string_view target);

// Tells which workers there are: the fixed addresses, and the addresses of names, which are looked up periodically. A
// name that cannot be looked up keeps its last addresses.
class WorkerDiscovery {
 public:
  using OnWorkers = std::function<void(const std::vector<std::string>& addresses)>;

  // `on_workers` gets all addresses, in the order of the targets. When no target is a name, the constructor calls it
  // once; otherwise a thread calls it after every look-up. A failed look-up is logged when it begins, changes or ends.
  WorkerDiscovery(const std::vector<std::string>& targets, absl::Duration interval, OnWorkers on_workers);
  ~WorkerDiscovery();

 private:
  struct Target {
    std::string name;
    std::vector<std::string> addresses;  // The result of the last look-up that succeeded.
    absl::Status error;                  // The error of the last look-up.
  };

  void Look();
  void ThreadMain();

  std::vector<Target> targets_;
  const absl::Duration interval_;
  const OnWorkers on_workers_;
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DISCOVERY_H_
