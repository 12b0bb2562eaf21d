// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_WAIT_REPORT_H_
#define QUIRE_KV_MANAGER_ADMIN_WAIT_REPORT_H_

#include <optional>
#include <string>

#include "base/ids.h"
#include "kv_manager/engine/loop_view.h"
#include "quire/v1/admin.pb.h"
#include "scheduler/scheduler.h"

namespace quire {

// Says why a request waits, and on which worker.
struct WaitReport {
  std::string worker = {};  // Empty: no worker has the request, and the other fields are not set.
  bool is_worker_lost = false;
  std::string last_error = {};  // Why the worker is lost.
  WaitReason reason = {};
  int num_pinned_blocks = 0;
};

// Asks the step loop why the request waits. Returns nothing when this loop does not have it.
std::optional<WaitReport> FindWait(RequestId request, const LoopView& loop);

// Writes the numbers and a sentence that explains them.
void EncodeWait(const WaitReport& report, v1::ExplainWaitResponse* out);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_WAIT_REPORT_H_
