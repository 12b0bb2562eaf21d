// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_TIMED_BACKEND_H_
#define QUIRE_BENCH_TIMED_BACKEND_H_

#include <array>
#include <utility>

#include "kernels/forwarding_backend.h"

namespace quire {

// The operations on which the steps of a model spend their time.
enum class Kernel { kLinear, kGatedLinear, kAttention, kRopeAppend, kRmsNorm, kSample, kOther };
inline constexpr int kNumKernels = 7;
const char* Name(Kernel kernel);

using KernelSeconds = std::array<double, kNumKernels>;  // [Kernel], in seconds.

double Sum(const KernelSeconds& seconds);

// Passes all operations to another backend and measures their wall-clock time. Each operation reads the clock twice,
// which takes about 50 ns. REQUIRES: an operation of the other backend is finished when it returns, as on the CPU.
class TimedBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // Returns the times since the last call.
  KernelSeconds TakeSeconds() { return std::exchange(seconds_, KernelSeconds{}); }

  void CopyToDevice(void* destination, const void* source, size_t bytes) override;
  void CopyToHost(void* destination, const void* source, size_t bytes) override;
  const BatchView& PrepareBatch(const BatchView& batch, int max_tokens) override;
  void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, float scale, void* y) override;
  void Linear(const LinearArgs& args) override;
  void GatedLinear(const GatedLinearArgs& args) override;
  void RmsNorm(const RmsNormArgs& args) override;
  void RopeAppend(const RopeAppendArgs& args) override;
  void Attention(const AttentionArgs& args) override;
  void GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) override;
  void CopyBlocks(const BlockCopyArgs& args) override;
  void SwapBlocks(const BlockSwapArgs& args) override;
  void Sample(const SamplingArgs& args) override;

 private:
  KernelSeconds seconds_ = {};
};

}  // namespace quire

#endif  // QUIRE_BENCH_TIMED_BACKEND_H_
