// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_PAGE_H_
#define QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_PAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "kv_manager/engine/manager_engine.h"
#include "serving/http_page.h"

namespace quire {

// The status page for browsers, and the JSON that it fetches once a second. Read-only. The step loops are asked for a
// snapshot only when somebody looks. The page pauses between two snapshots, however many look. The pause is 500 times
// as long as the snapshot took, but at least 0.5 s and at most 10 s. A snapshot takes as long as the slowest step loop
// needs for it. Thread-safe.
//
// The port has no authentication. So single requests (their names, tenants, sizes and blocks) are shown only if three
// conditions hold: the operator has allowed it, and knows that there is no proxy before the port; the reader is a local
// user (see HttpRequest); and callers of the manager need neither token nor certificate. Everybody else sees sums and
// the map of blocks.
class StatusPage {
 public:
  // The pause after a snapshot, as a multiple of the time that it took, and the least and longest pause.
  static constexpr int64_t kPauseFactor = 500;
  static constexpr int64_t kMinPauseUs = 500'000;
  static constexpr int64_t kMaxPauseUs = 10'000'000;
  static constexpr int64_t kMinBlockIntervalUs = 50'000;  // Least time between descriptions of blocks.

  struct Environment {
    ManagerEngine* engine;  // Borrowed.
    std::function<absl::flat_hash_map<RequestId, std::string>()> request_names;
    bool has_names = false;       // The operator allows single requests to be shown.
    bool has_open_calls = false;  // Callers need neither token nor certificate.
    const Clock* clock = &SteadyClock();
  };

  explicit StatusPage(Environment environment);

  // The document, which never changes.
  HttpResponse Page() const;
  // The state of everything. The header Age tells how many seconds ago it was taken.
  HttpResponse Status(const HttpRequest& request);
  // One block, by the parameters "worker=ADDRESS&block=N".
  HttpResponse Block(const HttpRequest& request);

  int64_t num_snapshots() const;  // Returns how many were begun. It is for tests.

 private:
  struct SnapshotUnderWay;
  struct ShownSnapshot;

  std::string WhyNoNames(const HttpRequest& request) const;
  std::shared_ptr<SnapshotUnderWay> StartSnapshot();
  // The newest snapshot; null when there is none yet.
  std::shared_ptr<ShownSnapshot> CurrentSnapshot();
  // The snapshot under way, which begins here when it is time. Returns null when none is under way or too many threads
  // wait already.
  std::shared_ptr<SnapshotUnderWay> JoinSnapshot();
  bool MayDescribeBlock();

  const Environment environment_;
  const PageDocument document_;

  mutable Mutex mutex_;
  std::shared_ptr<SnapshotUnderWay> under_way_ QUIRE_GUARDED_BY(mutex_);
  std::shared_ptr<ShownSnapshot> shown_ QUIRE_GUARDED_BY(mutex_);  // The last snapshot that is complete.
  int64_t next_snapshot_us_ QUIRE_GUARDED_BY(mutex_) = 0;          // No snapshot begins earlier.
  int64_t next_block_us_ QUIRE_GUARDED_BY(mutex_) = 0;             // No block is described earlier.
  int num_waiting_ QUIRE_GUARDED_BY(mutex_) = 0;                   // Threads that wait for step loops.
  int64_t num_snapshots_ QUIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_PAGE_H_
