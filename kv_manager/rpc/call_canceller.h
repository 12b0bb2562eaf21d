// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_RPC_CALL_CANCELLER_H_
#define QUIRE_KV_MANAGER_RPC_CALL_CANCELLER_H_

#include <grpcpp/grpcpp.h>

#include <mutex>

namespace quire {

// Cancels a call from a thread that is not gRPC's. The context of the call may be gone by then, because the call has
// ended. Thread-safe.
class CallCanceller {
 public:
  explicit CallCanceller(grpc::CallbackServerContext* context) : context_(context) {}

  // Does nothing after OnDone.
  void TryCancel() {
    const std::lock_guard lock(mutex_);
    if (!is_done_) context_->TryCancel();
  }

  // Called by the reactor's OnDone. The context lives until that returns.
  void OnDone() {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
  }

 private:
  grpc::CallbackServerContext* const context_;
  // Recursive, which Mutex is not: within TryCancel, gRPC may call the reactor and even its OnDone.
  std::recursive_mutex mutex_;
  bool is_done_ = false;  // Guarded by mutex_.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_CALL_CANCELLER_H_
