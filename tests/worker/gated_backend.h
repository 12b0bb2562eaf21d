#ifndef QUIRE_TESTS_WORKER_GATED_BACKEND_H_
#define QUIRE_TESTS_WORKER_GATED_BACKEND_H_

#include <condition_variable>
#include <mutex>

#include "kernels/forwarding_backend.h"

namespace quire {

// A backend with a gate in front of Sample, so that a test can hold a step while it runs, and with logits that
// can be made infinite.
class GatedBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // From now on steps wait in Sample until Open. Thread-safe, like all four.
  void Close();
  void Open();
  // Returns when a step waits at the gate.
  void AwaitStep();
  // The first logit of every later step is infinite.
  void SpoilLogits();

  void Sample(const SamplingArgs& args) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool is_closed_ = false;
  bool is_step_waiting_ = false;
  bool is_spoiled_ = false;
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_GATED_BACKEND_H_
