// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_AUDIT_CALL_H_
#define QUIRE_KV_MANAGER_ADMIN_AUDIT_CALL_H_

#include <memory>

#include "kv_manager/admin/admin_call.h"
#include "kv_manager/admin/loop_asker.h"
#include "kv_manager/requests/request_registry.h"
#include "quire/v1/inspect.pb.h"

namespace quire {

// Audit: recounts the block references of the workers and compares their block tables with the manager's. Thread-safe.
class AuditCall {
 public:
  // Both are borrowed.
  AuditCall(LoopAsker* asker, const RequestRegistry* registry) : asker_(asker), registry_(registry) {}

  void Audit(const v1::AuditRequest& request, const AdminCall& call);

 private:
  struct Run;  // One audit under way.

  void Finish(Run* run, const AdminCall& call) const;

  LoopAsker* const asker_;
  const RequestRegistry* const registry_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_AUDIT_CALL_H_
