#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_REGISTRY_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_REGISTRY_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kv_manager/requests/token_stream.h"

namespace quire {

// The requests that run, by the names that clients know. Names are their owner's: equal ones of two owners have nothing
// to do with each other. Without tokens there is one owner, "". Thread-safe.
class RequestRegistry {
 public:
  explicit RequestRegistry(size_t max_requests) : max_requests_(max_requests) {}

  // ALREADY_EXISTS when a request of this name runs; RESOURCE_EXHAUSTED when `max_requests` of all owners run.
  absl::Status Add(const std::string& owner, const std::string& name, std::shared_ptr<TokenStream> stream);

  // The request is over: its name is free. No other stream may run under the name.
  void Remove(const std::string& owner, const std::string& name);

  // The names of all, by the numbers that the engine knows them by.
  absl::flat_hash_map<RequestId, std::string> Names() const;

  // Null when no such request runs.
  std::shared_ptr<TokenStream> Find(const std::string& owner, const std::string& name) const;
  // That of this name, whoever owns it; null as above. FAILED_PRECONDITION when several owners have one. Looks at all.
  absl::StatusOr<std::shared_ptr<TokenStream>> FindOfAnybody(const std::string& name) const;

 private:
  const size_t max_requests_;
  mutable std::mutex mutex_;
  // By owner and name. Guarded by mutex_.
  absl::flat_hash_map<std::pair<std::string, std::string>, std::shared_ptr<TokenStream>> streams_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_REGISTRY_H_
