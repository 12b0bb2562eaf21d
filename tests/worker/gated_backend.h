#ifndef QUIRE_TESTS_WORKER_GATED_BACKEND_H_
#define QUIRE_TESTS_WORKER_GATED_BACKEND_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/backend.h"

namespace quire {

// The CPU backend with a gate in front of Sample, so that a test can hold a step while it runs, and with logits that
// can be made infinite.
class GatedBackend : public Backend {
 public:
  GatedBackend() : cpu_(MakeCpuBackend(1)) {}

  // From now on steps wait in Sample until Open. Thread-safe, like all four.
  void Close();
  void Open();
  // Returns when a step waits at the gate.
  void AwaitStep();
  // The first logit of every later step is infinite.
  void SpoilLogits();

  std::string Description() const override { return cpu_->Description(); }
  std::string NumericsFingerprint() const override { return cpu_->NumericsFingerprint(); }
  void* Allocate(size_t bytes) override { return cpu_->Allocate(bytes); }
  void Free(void* memory) override { cpu_->Free(memory); }
  void* AllocateHost(size_t bytes) override { return cpu_->AllocateHost(bytes); }
  void FreeHost(void* memory) override { cpu_->FreeHost(memory); }
  void CopyToDevice(void* destination, const void* source, size_t bytes) override {
    cpu_->CopyToDevice(destination, source, bytes);
  }
  void CopyToHost(void* destination, const void* source, size_t bytes) override {
    cpu_->CopyToHost(destination, source, bytes);
  }
  size_t ActivationSize() const override { return cpu_->ActivationSize(); }
  std::unique_ptr<PackedMatrix> Pack(const MatrixView* matrices, int num_matrices) override {
    return cpu_->Pack(matrices, num_matrices);
  }
  std::unique_ptr<PackedMatrix> PackGated(const MatrixView& gate, const MatrixView& up) override {
    return cpu_->PackGated(gate, up);
  }
  DataType InputType(const PackedMatrix& w) const override { return cpu_->InputType(w); }
  void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, void* y) override {
    cpu_->Embed(table, token_ids, num_tokens, y);
  }
  void Linear(const LinearArgs& args) override { cpu_->Linear(args); }
  void GatedLinear(const GatedLinearArgs& args) override { cpu_->GatedLinear(args); }
  void RmsNorm(const RmsNormArgs& args) override { cpu_->RmsNorm(args); }
  void RopeAppend(const RopeAppendArgs& args) override { cpu_->RopeAppend(args); }
  void Attention(const AttentionArgs& args) override { cpu_->Attention(args); }
  void GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) override {
    cpu_->GatherRows(x, rows, num_rows, dim, y);
  }
  void CopyBlocks(const BlockCopyArgs& args) override { cpu_->CopyBlocks(args); }
  void SwapBlocks(const BlockSwapArgs& args) override { cpu_->SwapBlocks(args); }
  void Sample(const SamplingArgs& args) override;

 private:
  const std::unique_ptr<Backend> cpu_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool is_closed_ = false;
  bool is_step_waiting_ = false;
  bool is_spoiled_ = false;
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_GATED_BACKEND_H_
