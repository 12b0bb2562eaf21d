#include "tests/worker/gated_backend.h"

#include <limits>

namespace quire {

void GatedBackend::Close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

void GatedBackend::Open() {
  const std::lock_guard lock(mutex_);
  is_closed_ = false;
  changed_.notify_all();
}

void GatedBackend::AwaitStep() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_step_waiting_; });
}

void GatedBackend::SpoilLogits() {
  const std::lock_guard lock(mutex_);
  is_spoiled_ = true;
}

void GatedBackend::Sample(const SamplingArgs& args) {
  {
    std::unique_lock lock(mutex_);
    is_step_waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_closed_; });
    is_step_waiting_ = false;
    if (is_spoiled_) {
      Wait(Mark());
      const_cast<float*>(args.logits)[0] = std::numeric_limits<float>::infinity();
    }
  }
  ForwardingBackend::Sample(args);
}

}  // namespace quire
