#ifndef QUIRE_KV_MANAGER_INFERENCE_CALL_CANCELLER_H_
#define QUIRE_KV_MANAGER_INFERENCE_CALL_CANCELLER_H_

#include <grpcpp/grpcpp.h>

#include <mutex>

namespace quire {

// Cancels a call from a thread that is not gRPC's, which may come when the call is over and its context gone.
// Thread-safe.
class CallCanceller {
 public:
  explicit CallCanceller(grpc::CallbackServerContext* context) : context_(context) {}

  // Does nothing after OnDone.
  void TryCancel() {
    const std::lock_guard lock(mutex_);
    if (!is_done_) context_->TryCancel();
  }

  // From the reactor's OnDone: the context lives until that returns.
  void OnDone() {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
  }

 private:
  grpc::CallbackServerContext* const context_;
  // gRPC may call the reactor, up to its OnDone, within TryCancel.
  std::recursive_mutex mutex_;
  bool is_done_ = false;  // Guarded by mutex_.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_CALL_CANCELLER_H_
