// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_TIMED_BACKEND_H_
#define QUIRE_BENCH_TIMED_BACKEND_H_

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/forwarding_backend.h"

namespace quire {

// The operations on which the steps of a model spend their time.
enum class Kernel { kLinear, kGatedLinear, kExperts, kAttention, kRopeAppend, kRmsNorm, kSample, kOther };
inline constexpr int kNumKernels = 8;
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
  // Returns the number of experts that a layer with experts has used in the mean since the last call; 0 without one.
  double TakeUsedExperts();

  void CopyToDevice(void* destination, const void* source, size_t bytes) override;
  void CopyToHost(void* destination, const void* source, size_t bytes) override;
  const BatchView* PrepareBatch(const BatchView* views, int num_views, int max_tokens) override;
  void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, float scale, void* y) override;
  void Linear(const LinearArgs& args) override;
  void GatedLinear(const GatedLinearArgs& args) override;
  void Route(const RouteArgs& args) override;
  void ExpertMlp(const ExpertMlpArgs& args) override;
  void RmsNorm(const RmsNormArgs& args) override;
  void RopeAppend(const RopeAppendArgs& args) override;
  void Attention(const AttentionArgs& args) override;
  void GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) override;
  void CopyBlocks(const BlockCopyArgs& args) override;
  void SwapBlocks(const BlockSwapArgs& args) override;
  void Sample(const SamplingArgs& args) override;

 private:
  KernelSeconds seconds_ = {};
  int64_t used_experts_ = 0;  // Sum over the calls of ExpertMlp.
  int64_t expert_calls_ = 0;
};

}  // namespace quire

#endif  // QUIRE_BENCH_TIMED_BACKEND_H_
