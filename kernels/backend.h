// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_BACKEND_H_
#define QUIRE_KERNELS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/backend_status.h"
#include "kernels/device_memory.h"
#include "kernels/kv_layout.h"
#include "kernels/layer_recorder.h"
#include "kernels/operations.h"

namespace quire {

// The largest numbers in the steps of a worker.
struct StepSizes {
  int max_tokens;
  int max_sequences;
  int max_context_tokens;  // Limit for one sequence.
  int max_logit_rows;      // Limit for one call of Sample.
  int max_top;             // SamplingArgs::max_top
  int vocab_size;
};

// A device with its memory and operations. There is one implementation for CPUs and one for GPUs. The executor thread
// owns it. Every output element is accumulated in a fixed order, so that a result does not depend on the other rows of
// the batch, unless NumericsFingerprint contains "tuned".
class Backend : public DeviceMemory, public Operations {
 public:
  // Tells the backend that the calling thread will call the operations. The backend may bind that thread, and its own
  // threads that compute, to cores.
  virtual void BindThreads() = 0;

  virtual std::string Description() const = 0;  // For example "cpu avx512_bf16, 8 threads".
  // Two backends with equal fingerprints compute equal bits, unless the fingerprint contains "tuned".
  virtual std::string NumericsFingerprint() const = 0;

  // Returns whether an operation may still be running when its call returns. The host may then queue a step while the
  // device runs the step before it. Otherwise every operation is done when its call returns.
  virtual bool IsAsynchronous() const = 0;
  // Returns a mark for this point in the order of operations. Later marks are greater.
  virtual uint64_t Mark() = 0;
  // Returns whether every operation before the mark is done. Everything that it writes to host memory is there then.
  virtual bool IsDone(uint64_t mark) = 0;
  // Waits until IsDone.
  virtual void Wait(uint64_t mark) = 0;

  // Returns whether the backend has kernels for K and V in that layout with `num_heads` query heads.
  virtual BackendStatus CheckLayout(const KvLayout& layout, int num_heads) const = 0;
  // Takes the memory that steps of these sizes may need in addition to what the caller allocates and to what a step of
  // max_tokens tokens takes: whatever the requests ask for, no later step takes more. Returns an error when there is
  // not enough. REQUIRES: CheckLayout is OK.
  virtual BackendStatus Reserve(const KvLayout& layout, int num_heads, const StepSizes& sizes) = 0;

  // Sets the group of the operations that exchange something with other ranks, or null for none. All ranks call this at
  // the same point among their exchanges. An asynchronous backend then connects its device with the devices of the
  // other ranks, which takes seconds, and needs the group until the next call. Returns an error if it cannot, or if the
  // group has ended. REQUIRES: no operation that exchanges something is running.
  virtual BackendStatus SetGroup(Collective* /*group*/) { return BackendStatus::Ok(); }

  // Returns null when the backend does not record layers.
  virtual LayerRecorder* layer_recorder() { return nullptr; }
};

// Makes a CPU backend with `num_threads` threads, or with one thread per core if `num_threads` is 0.
std::unique_ptr<Backend> MakeCpuBackend(int num_threads);

}  // namespace quire

#endif  // QUIRE_KERNELS_BACKEND_H_
