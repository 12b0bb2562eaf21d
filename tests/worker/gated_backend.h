// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_GATED_BACKEND_H_
#define QUIRE_TESTS_WORKER_GATED_BACKEND_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/mutex.h"
#include "kernels/cuda/progress_watch.h"
#include "kernels/forwarding_backend.h"

namespace quire {

// A backend with a gate in front of Sample, which lets a test hold a step while it runs. A test can also make its
// logits infinite, or let it hang. Close, Open, AwaitStep, SpoilLogits and Hang are thread-safe.
class GatedBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // Makes steps wait in Sample until Open is called.
  void Close();
  void Open();
  // Returns when a step waits at the gate.
  void AwaitStep();
  // Makes the first logit of every later step infinite, and the first number that is read of hidden states, or stops
  // that.
  void SpoilLogits(bool is_spoiled = true);

  // Makes it finish nothing from now on. It ends the process when a GPU with that limit would (cuda::ProgressWatch).
  void Hang(std::chrono::milliseconds longest_wait);
  // Returns when somebody has asked a device that hangs whether it is done.
  void AwaitQuestion() const;

  uint64_t Mark() override;
  bool IsDone(uint64_t mark) override;
  void Wait(uint64_t mark) override;
  void Sample(const SamplingArgs& args) override;
  void ReadRows(const void* x, int num_rows, int dim, float* values) override;
  // While the gate is closed, or logits are infinite, nothing is repeated, so that every step comes to Sample.
  LayerRecorder* layer_recorder() override;

 private:
  Mutex mutex_;
  CondVar changed_;
  bool is_closed_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_step_waiting_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_spoiled_ QUIRE_GUARDED_BY(mutex_) = false;
  std::atomic<bool> hangs_ = false, was_asked_ = false;
  std::optional<cuda::ProgressWatch> watch_;  // Set before hangs_.
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_GATED_BACKEND_H_
