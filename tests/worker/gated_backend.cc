// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/gated_backend.h"

#include <limits>
#include <thread>

#include "kernels/cuda/fatal.h"

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

void GatedBackend::SpoilLogits(bool is_spoiled) {
  const MutexLock lock(&mutex_);
  is_spoiled_ = is_spoiled;
}

void GatedBackend::Hang(std::chrono::milliseconds longest_wait) {
  watch_.emplace(longest_wait);
  hangs_ = true;
}

void GatedBackend::AwaitQuestion() const {
  while (!was_asked_) std::this_thread::yield();
}

uint64_t GatedBackend::Mark() {
  const uint64_t mark = ForwardingBackend::Mark();
  if (hangs_) watch_->Add(mark);
  return mark;
}

bool GatedBackend::IsDone(uint64_t mark) {
  if (!hangs_) return ForwardingBackend::IsDone(mark);
  was_asked_ = true;
  if (watch_->Hangs(mark)) cuda::Fatal("%s", "the gated backend hangs");
  return false;
}

void GatedBackend::Wait(uint64_t mark) {
  if (!hangs_) return ForwardingBackend::Wait(mark);
  while (!IsDone(mark)) std::this_thread::yield();
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

void GatedBackend::ReadRows(const void* x, int num_rows, int dim, float* values) {
  ForwardingBackend::ReadRows(x, num_rows, dim, values);
  const MutexLock lock(&mutex_);
  if (is_spoiled_) values[0] = std::numeric_limits<float>::infinity();
}

}  // namespace quire
