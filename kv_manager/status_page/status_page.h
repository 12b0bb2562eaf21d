#ifndef QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_PAGE_H_
#define QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_PAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "kv_manager/engine/manager_engine.h"
#include "serving/http_page.h"

namespace quire {

// The status page for browsers and what it asks for once a second, read-only. Step loops are asked when somebody looks,
// and then so seldom, however many look, that it takes at most one part in kLoopShare of their time, or ten seconds
// apart when a look takes over 20 ms. Thread-safe.
//
// The port has no authentication, so single requests (names, tenants, sizes, what blocks they hold) are shown only when
// the operator says so, who knows whether a proxy is before the port; then only to a local user (see HttpRequest), and
// only while callers of the manager itself need no proof of who they are. All others see sums and the map.
class StatusPage {
 public:
  static constexpr int64_t kMinIntervalUs = 500'000;  // Between two looks.
  static constexpr int64_t kLoopShare = 500;
  static constexpr int64_t kMinBlockIntervalUs = 50'000;  // Between two blocks described.

  struct Environment {
    ManagerEngine* engine;  // Borrowed.
    std::function<absl::flat_hash_map<RequestId, std::string>()> request_names;
    bool has_names = false;       // The operator wants single requests to be shown.
    bool has_open_calls = false;  // Callers need neither token nor certificate.
    const Clock* clock = &SteadyClock();
  };

  explicit StatusPage(Environment environment);

  HttpResponse Page() const;                        // The document, always the same.
  HttpResponse Status(const HttpRequest& request);  // Its header Age: seconds since all step loops answered.
  HttpResponse Block(const HttpRequest& request);   // "worker=ADDRESS&block=N"

  int64_t num_looks() const;  // So many times all step loops were asked.

 private:
  struct Look;
  struct Shown;

  std::string WhyNoNames(const HttpRequest& request) const;
  std::shared_ptr<Look> StartLook();
  std::shared_ptr<Shown> CurrentLook();
  bool MayDescribeBlock();

  const Environment environment_;
  const std::string document_;
  const std::string policy_;  // Content-Security-Policy of the document.

  mutable std::mutex mutex_;  // Guards the rest.
  std::shared_ptr<Look> under_way_;
  std::shared_ptr<Shown> shown_;  // The last one that has ended.
  int64_t next_look_us_ = 0;
  int64_t next_block_us_ = 0;
  int num_waiting_ = 0;
  int64_t num_looks_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_PAGE_H_
