// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_REGISTRY_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_REGISTRY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "kv_manager/requests/token_stream.h"
#include "security/caller.h"

namespace quire {

// All live requests of the manager: which names are taken, and how many clients have not read the end of their request
// yet. Each request has one Registration, whose destruction removes every trace of it. Thread-safe.
//
// A name belongs to its owner, the tenant of the caller: equal names of two owners are two requests. Without tokens
// there is one owner, "".
class RequestRegistry {
 public:
  // The entry of one request. It must not outlive the registry. Thread-safe.
  class Registration {
   public:
    // Frees the name and stops waiting for the client.
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

    // The request has ended: its name is free, although the client may not have read the end. A second call does
    // nothing.
    void FreeName();

    // Gives the name and the place among the requests of all owners to another stream of this tenant. The limits do not
    // matter, because the number of requests stays the same. REQUIRES: the name is not free.
    void GiveTo(std::shared_ptr<TokenStream> stream, const std::string& tenant);

    // WaitForReaders does not wait for this request any more. A second call does nothing.
    void StopWaiting();

   private:
    friend class RequestRegistry;
    using Key = std::pair<std::string, std::string>;  // Owner and name.

    Registration(RequestRegistry* registry, Key key, std::string tenant, bool has_name, bool is_resumable)
        : registry_(registry),
          key_(std::move(key)),
          tenant_(std::move(tenant)),
          is_resumable_(is_resumable),
          has_name_(has_name) {}

    RequestRegistry* const registry_;
    const Key key_;
    std::string tenant_;       // Guarded by the mutex of the registry, like has_name_ and is_awaited_.
    const bool is_resumable_;  // The client can get the rest in another call.
    bool has_name_;
    bool is_awaited_ = true;  // WaitForReaders waits for it.
  };

  explicit RequestRegistry(size_t max_requests) : max_requests_(max_requests) {}

  // The id of the next request. No two requests get the same.
  RequestId NextId() { return RequestId{next_id_++}; }

  // Returns ALREADY_EXISTS when the owner has a request of this name, and RESOURCE_EXHAUSTED when the requests of all
  // owners have reached `max_requests`. One eighth of `max_requests` is added as a reserve. A tenant may use the
  // reserve as long as its requests, with the new one, are at most an equal share of `max_requests` among the tenants
  // that have requests. So a tenant that takes all places does not keep others out.
  absl::StatusOr<std::unique_ptr<Registration>> Register(const std::string& owner, const std::string& name,
                                                         std::shared_ptr<TokenStream> stream,
                                                         const std::string& tenant = "");

  // A registration without a name, of one more call for a request that can be resumed: WaitForReaders waits for its
  // client.
  std::unique_ptr<Registration> AwaitReader();

  // The caller's request of this name; an operator finds the request of any owner. NOT_FOUND when there is none,
  // FAILED_PRECONDITION when an operator's name fits the requests of several owners. `caller` is empty when callers
  // need no token.
  absl::StatusOr<std::shared_ptr<TokenStream>> Find(const std::optional<Caller>& caller, const std::string& name) const;

  // The names of all requests, by the ids that the engine uses.
  absl::flat_hash_map<RequestId, std::string> Names() const;

  // Waits until every registration is gone or has stopped waiting; without `awaits_resumable`, only for registrations
  // of requests that cannot be resumed. Returns false when the timeout came first.
  bool WaitForReaders(absl::Duration timeout, bool awaits_resumable = true);

 private:
  using Key = Registration::Key;

  void FreeName(Registration* registration);
  void Give(Registration* registration, std::shared_ptr<TokenStream> stream, const std::string& tenant);
  void StopWaiting(Registration* registration);
  bool HasPlaceFor(const std::string& tenant) const QUIRE_REQUIRES(mutex_);
  // A tenant has one request less.
  void Uncount(const std::string& tenant) QUIRE_REQUIRES(mutex_);
  // Looks at the requests of all owners; null when none has the name.
  absl::StatusOr<std::shared_ptr<TokenStream>> FindOfAnyOwner(const std::string& name) const QUIRE_REQUIRES(mutex_);

  const size_t max_requests_;
  std::atomic<uint64_t> next_id_ = 1;
  mutable Mutex mutex_;
  CondVar all_read_;
  absl::flat_hash_map<Key, std::shared_ptr<TokenStream>> streams_ QUIRE_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, size_t> num_by_tenant_ QUIRE_GUARDED_BY(mutex_);  // The requests in streams_.
  int num_awaited_ QUIRE_GUARDED_BY(mutex_) = 0;                                     // Registrations.
  int num_awaited_resumable_ QUIRE_GUARDED_BY(mutex_) = 0;                           // Part from AwaitReader.
  int NumAwaited(bool counts_resumable) const QUIRE_REQUIRES(mutex_) {
    return num_awaited_ - (counts_resumable ? 0 : num_awaited_resumable_);
  }
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_REGISTRY_H_
