// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/gated_backend.h"

#include <limits>

namespace quire {

void GatedBackend::Close() {
  const MutexLock lock(&mutex_);
  is_closed_ = true;
}

void GatedBackend::Open() {
  const MutexLock lock(&mutex_);
  is_closed_ = false;
  changed_.NotifyAll();
}

void GatedBackend::AwaitStep() {
  const MutexLock lock(&mutex_);
  while (!is_step_waiting_) changed_.Wait(&mutex_);
}

void GatedBackend::SpoilLogits() {
  const MutexLock lock(&mutex_);
  is_spoiled_ = true;
}

LayerRecorder* GatedBackend::layer_recorder() {
  const MutexLock lock(&mutex_);
  return is_closed_ || is_spoiled_ ? nullptr : ForwardingBackend::layer_recorder();
}

void GatedBackend::Sample(const SamplingArgs& args) {
  {
    const MutexLock lock(&mutex_);
    is_step_waiting_ = true;
    changed_.NotifyAll();
    while (is_closed_) changed_.Wait(&mutex_);
    is_step_waiting_ = false;
    const float infinity = std::numeric_limits<float>::infinity();
    if (is_spoiled_) CopyToDevice(const_cast<float*>(args.logits), &infinity, sizeof(infinity));
  }
  ForwardingBackend::Sample(args);
}

}  // namespace quire
