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

// The status page for browsers, and the JSON that it fetches once a second. Read-only. The step loops are asked only
// when somebody looks. However many look, this takes at most 1/kLoopShare of the time of the loops; when one look takes
// more than 20 ms, the looks are ten seconds apart. Thread-safe.
//
// The port has no authentication. So single requests (their names, tenants, sizes and blocks) are shown only if three
// conditions hold: the operator has allowed it, and knows that no proxy stands before the port; the reader is a local
// user (see HttpRequest); and callers of the manager need neither token nor certificate. Everybody else sees sums and
// the map of blocks.
class StatusPage {
 public:
  static constexpr int64_t kMinIntervalUs = 500'000;  // Between two looks.
  static constexpr int64_t kLoopShare = 500;
  static constexpr int64_t kMinBlockIntervalUs = 50'000;  // Between two blocks described.

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

  int64_t num_looks() const;  // How often the step loops were asked.

 private:
  struct Look;
  struct Shown;

  std::string WhyNoNames(const HttpRequest& request) const;
  std::shared_ptr<Look> StartLook();
  std::shared_ptr<Shown> CurrentLook();
  // The look under way, after beginning one when it is time; null when there is none or too many threads wait already.
  std::shared_ptr<Look> JoinLook();
  bool MayDescribeBlock();

  const Environment environment_;
  const std::string document_;
  const std::string policy_;  // Content-Security-Policy of the document.

  mutable Mutex mutex_;
  std::shared_ptr<Look> under_way_ QUIRE_GUARDED_BY(mutex_);
  std::shared_ptr<Shown> shown_ QUIRE_GUARDED_BY(mutex_);  // The last look that has ended.
  int64_t next_look_us_ QUIRE_GUARDED_BY(mutex_) = 0;      // No look begins earlier.
  int64_t next_block_us_ QUIRE_GUARDED_BY(mutex_) = 0;     // No block is described earlier.
  int num_waiting_ QUIRE_GUARDED_BY(mutex_) = 0;           // Threads that wait for step loops.
  int64_t num_looks_ QUIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_PAGE_H_
