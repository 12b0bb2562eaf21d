#ifndef QUIRE_BENCH_TIMED_BACKEND_H_
#define QUIRE_BENCH_TIMED_BACKEND_H_

#include <array>
#include <memory>
#include <utility>

#include "kernels/backend.h"

namespace quire {

// What the steps of a model spend their time on.
enum class Kernel { kLinear, kGatedLinear, kAttention, kRopeAppend, kRmsNorm, kSample, kOther };
inline constexpr int kNumKernels = 7;
const char* Name(Kernel kernel);

using KernelSeconds = std::array<double, kNumKernels>;  // By Kernel.

double Sum(const KernelSeconds& seconds);

// Another backend, and how long its operations took on the clock on the wall: two reads of the clock each, some 50 ns.
// REQUIRES: the operations of the other one are finished when they return, as they are on the CPU.
class TimedBackend : public Backend {
 public:
  explicit TimedBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  // Since the last call.
  KernelSeconds TakeSeconds() { return std::exchange(seconds_, KernelSeconds{}); }

  void BindThreads() override { backend_->BindThreads(); }
  std::string Description() const override { return backend_->Description(); }
  std::string NumericsFingerprint() const override { return backend_->NumericsFingerprint(); }

  bool IsAsynchronous() const override { return backend_->IsAsynchronous(); }
  uint64_t Mark() override { return backend_->Mark(); }
  bool IsDone(uint64_t mark) override { return backend_->IsDone(mark); }
  void Wait(uint64_t mark) override { backend_->Wait(mark); }
  std::string WhyNot(const KvLayout& layout, int num_heads) const override {
    return backend_->WhyNot(layout, num_heads);
  }
  std::string Reserve(const KvLayout& layout, int num_heads, int max_tokens, int max_context_tokens) override {
    return backend_->Reserve(layout, num_heads, max_tokens, max_context_tokens);
  }
  std::optional<size_t> FreeBytes() const override { return backend_->FreeBytes(); }
  void* Allocate(size_t bytes) override { return backend_->Allocate(bytes); }
  void Free(void* memory) override { backend_->Free(memory); }
  void* AllocateHost(size_t bytes) override { return backend_->AllocateHost(bytes); }
  void FreeHost(void* memory) override { backend_->FreeHost(memory); }
  void CopyToDevice(void* destination, const void* source, size_t bytes) override;
  void CopyToHost(void* destination, const void* source, size_t bytes) override;
  DataType ActivationType() const override { return backend_->ActivationType(); }

  std::unique_ptr<PackedMatrix> Pack(const MatrixView* matrices, int num_matrices) override;
  std::unique_ptr<PackedMatrix> PackGated(const MatrixView& gate, const MatrixView& up) override;
  DataType InputType(const PackedMatrix& w) const override { return backend_->InputType(w); }
  void KeepDrawnTokens(int num_places) override { backend_->KeepDrawnTokens(num_places); }
  const BatchView& PrepareBatch(const BatchView& batch, int max_tokens) override;
  bool BeginLayers(const void* model) override { return backend_->BeginLayers(model); }
  void EndLayers() override { backend_->EndLayers(); }
  void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, void* y) override;
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
  const std::unique_ptr<Backend> backend_;
  KernelSeconds seconds_ = {};
};

}  // namespace quire

#endif  // QUIRE_BENCH_TIMED_BACKEND_H_
