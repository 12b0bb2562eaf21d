// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_GUIDE_CACHE_H_
#define QUIRE_KV_MANAGER_REQUESTS_GUIDE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kv_manager/requests/rpc_counts.h"
#include "quire/v1/inference.pb.h"
#include "security/digest.h"

namespace quire {

// The sender of a guide. What is known of a guide is used again only for the same salt, which has the tenant in it (see
// AssumeTenant), so that nobody can find out from the time of an answer which guides others use.
struct GuideUser {
  std::string tenant = {};
  std::string salt = {};
  bool pays = true;  // Compilation costs the tenant time of its account.
};

// Knows which guides compile, and why others do not, so that the same guide is seldom compiled again. Compilation costs
// the tenant CPU time of an account, because a worker that gets the guide for the first time needs the same time. A
// guide that workers have probably dropped since its last use costs this time again. While the account is empty, guides
// that cost something are refused. Thread-safe.
class GuideCache {
 public:
  static constexpr size_t kMaxBytes = 4 << 20;
  // Number of guides that a worker keeps. After this number of uses of other guides, it counts as having dropped a
  // guide.
  static constexpr uint64_t kKeptByWorkers = 64;
  // A tenant saves at most the first number, and gets the second one each second.
  static constexpr int64_t kMaxSavedUs = 1'000'000;
  static constexpr int64_t kSavedUsPerSecond = 200'000;

  // Both are borrowed. `counts` counts what Check refuses because an account is empty.
  GuideCache(const Clock* clock, RpcCounts* counts, int64_t max_saved_us = kMaxSavedUs)
      : clock_(clock), counts_(counts), max_saved_us_(max_saved_us) {}

  // Returns whether Check needs no compilation.
  bool Knows(const GuideUser& user, const v1::Guide& guide) const QUIRE_EXCLUDES(mutex_);
  // Returns INVALID_ARGUMENT when the guide does not compile, as grammar::Compile does, and RESOURCE_EXHAUSTED when the
  // account of the tenant is empty and the user pays. It takes up to some 90 ms, unless Knows. When several threads ask
  // for the same guide, one of them compiles it, and the others wait.
  absl::Status Check(const GuideUser& user, const v1::Guide& guide) QUIRE_EXCLUDES(mutex_);

 private:
  struct Entry {
    Sha256Digest key;
    absl::Status status;
    int64_t cost_us;    // What it took to compile it.
    uint64_t last_use;  // The value of num_uses_ then.
  };
  struct Account {
    int64_t saved_us;
    int64_t updated_us;
  };

  static size_t BytesOf(const Entry& entry);
  // Returns how many microseconds an account has got since it was updated.
  static int64_t GainOf(const Account& account, int64_t now_us);
  // Returns how many microseconds the tenant has saved.
  int64_t& SavedOf(const std::string& tenant) QUIRE_REQUIRES(mutex_);
  // Uses an entry. RESOURCE_EXHAUSTED when it costs something and the account is empty.
  absl::Status Use(std::list<Entry>::iterator entry, const GuideUser& user) QUIRE_REQUIRES(mutex_);
  void Keep(Entry entry) QUIRE_REQUIRES(mutex_);

  const Clock* const clock_;
  RpcCounts* const counts_;
  const int64_t max_saved_us_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ QUIRE_GUARDED_BY(mutex_);  // The one that was used last is at the front.
  absl::flat_hash_map<Sha256Digest, std::list<Entry>::iterator> index_ QUIRE_GUARDED_BY(mutex_);
  size_t num_bytes_ QUIRE_GUARDED_BY(mutex_) = 0;
  uint64_t num_uses_ QUIRE_GUARDED_BY(mutex_) = 0;  // Uses of another entry than the one that was used before.
  absl::flat_hash_set<Sha256Digest> compiling_ QUIRE_GUARDED_BY(mutex_);
  CondVar compiled_;
  absl::flat_hash_map<std::string, Account> accounts_ QUIRE_GUARDED_BY(mutex_);  // By tenant. Full ones may be missing.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_GUIDE_CACHE_H_
