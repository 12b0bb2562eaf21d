// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_STATUS_CALLS_H_
#define QUIRE_KV_MANAGER_ADMIN_STATUS_CALLS_H_

#include <atomic>

#include "kv_manager/admin/admin_call.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/requests/request_environment.h"
#include "quire/v1/admin.pb.h"

namespace quire {

void EncodeStatus(const ManagerStatus& status, v1::GetStatusResponse* out);

// GetStatus and ExplainWait: how the manager and its workers are, and why a request does not run. Thread-safe.
class StatusCalls {
 public:
  // Both are borrowed.
  StatusCalls(ManagerEngine* engine, const RequestEnvironment* requests) : engine_(engine), requests_(requests) {}

  // Answers at once, from what the step loops have published.
  void GetStatus(const v1::GetStatusRequest& request, const AdminCall& call);
  // Asks the step loops. RESOURCE_EXHAUSTED when too many of these calls run.
  void ExplainWait(const v1::ExplainWaitRequest& request, const AdminCall& call);

 private:
  ManagerEngine* const engine_;
  const RequestEnvironment* const requests_;
  std::atomic<int> num_explained_ = 0;  // Calls of ExplainWait that are under way.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_STATUS_CALLS_H_
