#ifndef QUIRE_KV_MANAGER_REQUEST_REGISTRY_H_
#define QUIRE_KV_MANAGER_REQUEST_REGISTRY_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kv_manager/token_stream.h"

namespace quire {

// The requests that run, by the names that clients know. Thread-safe.
class RequestRegistry {
 public:
  explicit RequestRegistry(size_t max_requests) : max_requests_(max_requests) {}

  // ALREADY_EXISTS when a request of this name runs; RESOURCE_EXHAUSTED when `max_requests` run.
  absl::Status Add(const std::string& name, std::shared_ptr<TokenStream> stream);

  // The request is over: its name is free. No other stream may run under the name.
  void Remove(const std::string& name);

  // Null when no such request runs.
  std::shared_ptr<TokenStream> Find(const std::string& name) const;

 private:
  const size_t max_requests_;
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<TokenStream>> streams_;  // Guarded by mutex_.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUEST_REGISTRY_H_
