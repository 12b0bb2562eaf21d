// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_ADMIN_SERVICE_H_
#define QUIRE_KV_MANAGER_ADMIN_ADMIN_SERVICE_H_

#include "kv_manager/admin/audit_call.h"
#include "kv_manager/admin/block_calls.h"
#include "kv_manager/admin/loop_asker.h"
#include "kv_manager/admin/pin_calls.h"
#include "kv_manager/admin/request_calls.h"
#include "kv_manager/admin/status_calls.h"
#include "kv_manager/admin/worker_calls.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/rpc/received_call.h"

namespace quire {

// AdminService: hands each call to the class of its family. GetStatus answers from what the step loops have published;
// the others ask each loop, which answers in its next round. Handlers never wait. Thread-safe. The server must be shut
// down before the service is destroyed.
class AdminServiceImpl : public ReceivingService {
 public:
  // Both are borrowed.
  AdminServiceImpl(ManagerEngine* engine, RequestEnvironment* requests);

 private:
  StatusCalls status_;
  PinCalls pins_;
  BlockCalls blocks_;
  RequestCalls requests_;
  AuditCall audit_;
  WorkerCalls workers_;
  LoopAsker asker_;  // Ends first, because its jobs use the others; they hold its address.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_ADMIN_SERVICE_H_
