// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_GATED_BACKEND_H_
#define QUIRE_TESTS_WORKER_GATED_BACKEND_H_

#include "base/mutex.h"
#include "kernels/forwarding_backend.h"

namespace quire {

// A backend with a gate in front of Sample, which lets a test hold a step while it runs. A test can also make its
// logits infinite. Close, Open, AwaitStep and SpoilLogits are thread-safe.
class GatedBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // Makes steps wait in Sample until Open is called.
  void Close();
  void Open();
  // Returns when a step waits at the gate.
  void AwaitStep();
  // Makes the first logit of every later step infinite.
  void SpoilLogits();

  void Sample(const SamplingArgs& args) override;
  // While the gate is closed, or logits are infinite, nothing is repeated, so that every step comes to Sample.
  LayerRecorder* layer_recorder() override;

 private:
  Mutex mutex_;
  CondVar changed_;
  bool is_closed_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_step_waiting_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_spoiled_ QUIRE_GUARDED_BY(mutex_) = false;
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_GATED_BACKEND_H_
