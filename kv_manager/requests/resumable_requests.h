// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_RESUMABLE_REQUESTS_H_
#define QUIRE_KV_MANAGER_REQUESTS_RESUMABLE_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "kv_manager/engine/restore_request.h"
#include "kv_manager/requests/inference_options.h"
#include "kv_manager/requests/request_registry.h"
#include "kv_manager/requests/resume_token.h"
#include "kv_manager/requests/rpc_counts.h"
#include "kv_manager/requests/token_stream.h"
#include "security/digest.h"
#include "security/seal_key.h"

namespace quire {

// The error of a call for a request that a worker may have which this manager has not heard yet.
absl::Status RestoringError();

// The requests whose streams can be resumed: those that run, with or without a client, and those that have ended a
// short time ago. A request without a client is kept until the grace has passed, and so is one that has ended. When too
// many run without their clients, the oldest one of the tenant with the most of them is dropped. Requests that have
// ended are counted apart, in the same way. They are also dropped when a request that runs needs their memory, the ones
// of its own tenant first. 1/8 of the memory is reserved for tenants below their equal share. Thread-safe. A thread
// ends what has expired.
class ResumableRequests {
 public:
  // A request as its client names it.
  struct Identity {
    std::string owner;  // See OwnerOf.
    std::string name;
    std::string tenant;
    Sha256Digest digest = {};  // It covers the GenerateRequest without its seed and without continue_from.
    std::optional<uint64_t> seed = std::nullopt;  // If the client has chosen one.
    std::vector<SampleProgress> continued = {};   // The client has these of an earlier stream.
  };

  // `clock` is borrowed. Without a key in the options, the key is drawn, and no other process accepts the tokens.
  ResumableRequests(const DetachOptions& options, const Clock* clock);
  ~ResumableRequests();  // Stops.
  ResumableRequests(const ResumableRequests&) = delete;
  ResumableRequests& operator=(const ResumableRequests&) = delete;

  // Returns whether requests can be kept at all.
  bool is_enabled() const { return options_.max_detached > 0; }

  // The keeper of a new stream, which Add then makes known. `nonce` tells requests of one name apart.
  std::shared_ptr<StreamKeeper> NewKeeper(const Identity& identity, RequestId id, uint64_t nonce);

  // Keeps the stream, registers its name in `registry`, and returns the stream. On error, which is that of the registry
  // or NoReplayMemoryError, the stream is not kept. When its owner has a request of this name, returns the stream of
  // that request if it is the same one, and ALREADY_EXISTS otherwise. It is the same when the digests are equal, the
  // client has chosen no other seed, and the stream has everything that the client lacks. So a request with
  // continue_from finds the request that it continues. A request that has ended gives its name to another one, and one
  // that has failed gives it to any. So does one of an earlier manager that may continue with other tokens than the
  // client has.
  absl::StatusOr<std::shared_ptr<TokenStream>> Add(const Identity& identity, uint64_t nonce,
                                                   std::shared_ptr<TokenStream> stream, RequestRegistry* registry);
  // Keeps the stream of a request that another manager has started. Its client has the grace to come. Workers may have
  // several requests of one name, because they keep rows after the end: the one that has arrived last replaces the
  // others, unless a client has come for one of them. Several workers may have the same request, see IsLaterCopy: the
  // later copy replaces the other one. If a client has come for that, its call ends with RestoringError, and it finds
  // the later copy. It only keeps what it has found when tokens that are drawn again may be others. It returns the
  // errors of Add, RESOURCE_EXHAUSTED when too many requests have no client, and ALREADY_EXISTS when another request,
  // or another copy, keeps the name. After an error, the request that had the name continues as before. `grace_left` is
  // set when the request had ended: its client has only this time to come, although the stream is told of the end only
  // now.
  struct Restored {
    uint64_t nonce = 0;
    int64_t arrival_unix_us = 0;
    RestoredCopy copy;
    bool repeats_tokens = false;  // See RequestToRestore.
  };
  absl::Status Restore(const Identity& identity, const Restored& restored, const std::shared_ptr<TokenStream>& stream,
                       RequestRegistry* registry, std::optional<absl::Duration> grace_left = std::nullopt);
  // Returns the stream that Add would return instead of a new one, or null if it would keep the new one.
  absl::StatusOr<std::shared_ptr<TokenStream>> FindSame(const Identity& identity);

  // The stream of a resume token. Errors as for DecodeResumeToken, and NOT_FOUND when the stream is not kept. Then the
  // request does not run any more: one that has run on without a record ends, because its client has lost the call.
  absl::StatusOr<std::shared_ptr<TokenStream>> Find(const std::string& resume_token, const std::string& owner);

  // The request never ran: it is not kept any more.
  void Remove(const Identity& identity, RequestId id);

  // The requests that run without a client.
  absl::flat_hash_set<RequestId> Detached() const;
  DetachedCounts counts() const;

  // Ends what has expired.
  void Check();

  // Drops all streams. Later calls of their keepers change nothing.
  void Stop();

 private:
  class Keeper;
  using Key = std::pair<std::string, std::string>;  // Owner and name.

  struct Entry {
    RequestId id{0};
    uint64_t nonce = 0;
    std::optional<Restored> restored = std::nullopt;  // Only of a request of another manager.
    std::string tenant;
    Sha256Digest digest = {};
    std::shared_ptr<TokenStream> stream;
    std::unique_ptr<RequestRegistry::Registration> registration = nullptr;
    int64_t num_bytes = 0;
    int64_t expires_us = kNever;      // A time only while no client has the stream.
    int64_t max_expires_us = kNever;  // Set until a client comes, if the request had ended when it was restored.
    bool is_attached = true;
    bool has_ended = false;
    bool has_failed = false;
    bool is_forgotten = false;  // The stream cannot be resumed. The entry keeps the name until the request is over.
  };
  using Entries = absl::flat_hash_map<Key, Entry>;

  // Requests that wait for their clients, by tenant and by the time at which they expire.
  class Waiting {
   public:
    void Add(const std::string& tenant, int64_t expires_us, const Key& key);
    void Remove(const std::string& tenant, int64_t expires_us, const Key& key);
    size_t size() const { return size_; }
    // The one that expires first, of the tenant with the most. REQUIRES: size() > 0.
    const Key& Victim() const { return VictimOf(by_count_.rbegin()->second); }
    // The same of this tenant. REQUIRES: Has(tenant).
    const Key& VictimOf(const std::string& tenant) const { return by_tenant_.find(tenant)->second.begin()->second; }
    bool Has(const std::string& tenant) const { return by_tenant_.contains(tenant); }
    template <typename Visit>
    void ForEach(Visit visit) const {
      for (const auto& [tenant, keys] : by_tenant_) {
        for (const auto& [expires_us, key] : keys) visit(key);
      }
    }

   private:
    size_t size_ = 0;
    absl::flat_hash_map<std::string, std::set<std::pair<int64_t, Key>>> by_tenant_;  // No set is empty.
    std::set<std::pair<size_t, std::string>> by_count_;                              // The sizes of these sets.
  };

  // The keepers of the streams call these.
  std::string MakeToken(const Key& key, uint64_t nonce) const;
  // Returns by how many bytes the record of a stream may grow: at least by `num_bytes`, or 0 when there is no memory.
  int64_t Grow(const Key& key, RequestId id, int64_t num_bytes);
  void OnAttached(const Key& key, RequestId id);
  bool OnDetached(const Key& key, RequestId id);
  void OnEnded(const Key& key, RequestId id, bool is_ok);
  void OnForgotten(const Key& key, RequestId id);
  void OnClosed(const Key& key, RequestId id);

  // Add, except that the caller drops the streams of `removed` without the lock. If `replaced` is not null, it was
  // taken away for this stream, which gets its registration if it has one.
  absl::StatusOr<std::shared_ptr<TokenStream>> Insert(const Identity& identity, uint64_t nonce,
                                                      std::shared_ptr<TokenStream> stream, RequestRegistry* registry,
                                                      std::vector<Entry>* removed, Entry* replaced = nullptr)
      QUIRE_REQUIRES(mutex_);
  // The request has no client any more. RESOURCE_EXHAUSTED when it is not kept. The caller drops the streams of
  // `removed` without the lock, see DropOthers.
  absl::Status Detach(const Key& key, RequestId id, std::vector<Entry>* removed) QUIRE_REQUIRES(mutex_);
  // Drops these streams, except that of `id`, which its caller ends.
  static void DropOthers(const std::vector<Entry>& removed, RequestId id);
  Entry* FindEntry(const Key& key, RequestId id) QUIRE_REQUIRES(mutex_);
  absl::StatusOr<std::shared_ptr<TokenStream>> SameOrNull(const Identity& identity) QUIRE_REQUIRES(mutex_);
  // Returns whether the stream is that of the request. NOT_FOUND when it is, but cannot continue
  // behind the tokens that the client has, see TokenStream::CheckReceived.
  static absl::StatusOr<bool> IsSame(const Entry& entry, const Identity& identity);
  // Returns OK when this gives its name to another request, or another copy, of an earlier manager. The error says why
  // it does not.
  static absl::Status CheckGivesWay(const Entry& known, const Restored& restored);
  void SetExpiry(const Key& key, Entry* entry, int64_t expires_us) QUIRE_REQUIRES(mutex_);
  void SetGrace(const Key& key, Entry* entry) QUIRE_REQUIRES(mutex_);
  Waiting& WaitingLike(const Entry& entry) QUIRE_REQUIRES(mutex_) { return entry.has_ended ? ended_ : running_; }
  // Takes requests that wait for a client away until there are not too many.
  void MakeRoom(std::vector<Entry>* removed) QUIRE_REQUIRES(mutex_);
  // Takes requests that have ended away until there is memory for this tenant. Returns false when there is none.
  bool MakeMemory(const std::string& tenant, int64_t num_bytes, std::vector<Entry>* removed) QUIRE_REQUIRES(mutex_);
  bool HasMemory(const std::string& tenant, int64_t num_bytes) const QUIRE_REQUIRES(mutex_);
  // `num_bytes` may be negative.
  void AddBytes(Entry* entry, int64_t num_bytes) QUIRE_REQUIRES(mutex_);
  // Takes an entry away. The result still says when it would have expired and how many bytes it had.
  Entry Take(Entries::iterator it) QUIRE_REQUIRES(mutex_);
  // Undoes Take.
  void PutBack(const Key& key, Entry entry) QUIRE_REQUIRES(mutex_);
  void Run();

  const DetachOptions options_;
  const Clock* const clock_;
  const SealKey key_;

  mutable Mutex mutex_;
  CondVar changed_;
  Entries entries_ QUIRE_GUARDED_BY(mutex_);
  std::set<std::pair<int64_t, Key>> expiries_ QUIRE_GUARDED_BY(mutex_);  // Entries without an expiry are not here.
  Waiting running_ QUIRE_GUARDED_BY(mutex_);                             // Entries of running requests.
  Waiting ended_ QUIRE_GUARDED_BY(mutex_);                               // Entries of ended requests.
  int64_t replay_bytes_ QUIRE_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, int64_t> bytes_by_tenant_ QUIRE_GUARDED_BY(mutex_);  // No zeros.
  DetachedCounts counts_ QUIRE_GUARDED_BY(mutex_);                                      // Numbers that never fall.
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_RESUMABLE_REQUESTS_H_
