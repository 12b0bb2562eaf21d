// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_PIN_CALLS_H_
#define QUIRE_KV_MANAGER_ADMIN_PIN_CALLS_H_

#include <cstdint>

#include "kv_manager/admin/admin_call.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/requests/request_environment.h"
#include "quire/v1/admin.pb.h"

namespace quire {

inline constexpr uint32_t kDefaultPinSeconds = 600;

// PinPrefix and UnpinPrefix: keep what every worker has cached of a prompt, for a time. The input threads of the
// requests tokenize long prompts. Thread-safe.
class PinCalls {
 public:
  // Both are borrowed.
  PinCalls(ManagerEngine* engine, RequestEnvironment* requests) : engine_(engine), requests_(requests) {}

  void PinPrefix(const v1::PinPrefixRequest& request, const AdminCall& call);
  void UnpinPrefix(const v1::UnpinPrefixRequest& request, const AdminCall& call);

 private:
  void Pin(const v1::PinPrefixRequest& request, const AdminCall& call);
  void Unpin(const v1::UnpinPrefixRequest& request, const AdminCall& call);
  // Runs `start` where the length of the prompt says, or ends the call.
  template <typename Request>
  void RunOnText(const Request& request, const AdminCall& call,
                 void (PinCalls::*start)(const Request&, const AdminCall&));

  ManagerEngine* const engine_;
  RequestEnvironment* const requests_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_PIN_CALLS_H_
