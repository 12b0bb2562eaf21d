// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_FORWARDING_BACKEND_H_
#define QUIRE_KERNELS_FORWARDING_BACKEND_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace quire {

// Passes every call on to another backend. It is the base class of backends that observe or delay some operations.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  void BindThreads() override { backend_->BindThreads(); }
  std::string Description() const override { return backend_->Description(); }
  std::string NumericsFingerprint() const override { return backend_->NumericsFingerprint(); }
  bool IsAsynchronous() const override { return backend_->IsAsynchronous(); }
  uint64_t Mark() override { return backend_->Mark(); }
  bool IsDone(uint64_t mark) override { return backend_->IsDone(mark); }
  void Wait(uint64_t mark) override { backend_->Wait(mark); }
  BackendStatus CheckLayout(const KvLayout& layout, int num_heads) const override {
    return backend_->CheckLayout(layout, num_heads);
  }
  BackendStatus Reserve(const KvLayout& layout, int num_heads, const StepSizes& sizes) override {
    return backend_->Reserve(layout, num_heads, sizes);
  }
  std::optional<size_t> FreeBytes() const override { return backend_->FreeBytes(); }
  std::optional<size_t> TotalBytes() const override { return backend_->TotalBytes(); }
  void* Allocate(size_t bytes) override { return backend_->Allocate(bytes); }
  void Free(void* memory) override { backend_->Free(memory); }
  void* AllocateHost(size_t bytes) override { return backend_->AllocateHost(bytes); }
  void FreeHost(void* memory) override { backend_->FreeHost(memory); }
  void CopyToDevice(void* destination, const void* source, size_t bytes) override {
    backend_->CopyToDevice(destination, source, bytes);
  }
  void CopyToHost(void* destination, const void* source, size_t bytes) override {
    backend_->CopyToHost(destination, source, bytes);
  }
  DataType ActivationType() const override { return backend_->ActivationType(); }
  bool Has(OptionalPart part) const override { return backend_->Has(part); }
  std::unique_ptr<PackedMatrix> Pack(const MatrixView* matrices, int num_matrices) override {
    return backend_->Pack(matrices, num_matrices);
  }
  std::unique_ptr<PackedMatrix> PackGated(const MatrixView& gate, const MatrixView& up) override {
    return backend_->PackGated(gate, up);
  }
  bool MultipliesQuantized() const override { return backend_->MultipliesQuantized(); }
  bool MultipliesFp8() const override { return backend_->MultipliesFp8(); }
  std::unique_ptr<PackedMatrix> PackQuantized(const QuantizedMatrixView* matrices, int num_matrices) override {
    return backend_->PackQuantized(matrices, num_matrices);
  }
  std::unique_ptr<PackedMatrix> PackGatedQuantized(const QuantizedMatrixView& gate,
                                                   const QuantizedMatrixView& up) override {
    return backend_->PackGatedQuantized(gate, up);
  }
  bool MultipliesBlocks() const override { return backend_->MultipliesBlocks(); }
  std::unique_ptr<PackedMatrix> PackBlocks(const BlockMatrixView* matrices, int num_matrices) override {
    return backend_->PackBlocks(matrices, num_matrices);
  }
  std::unique_ptr<PackedMatrix> PackGatedBlocks(const BlockMatrixView& gate, const BlockMatrixView& up) override {
    return backend_->PackGatedBlocks(gate, up);
  }
  bool RoundsQuantizedInputs(QuantizedFormat format, Fp8ScaleShape scales) const override {
    return backend_->RoundsQuantizedInputs(format, scales);
  }
  BackendStatus CheckQuantized(const PackedMatrix& w, const QuantizedMatrixView* matrices, int num_matrices) override {
    return backend_->CheckQuantized(w, matrices, num_matrices);
  }
  DataType InputType(const PackedMatrix& w) const override { return backend_->InputType(w); }
  InputLayout InputLayoutOf(const PackedMatrix& w, int num_tokens) const override {
    return backend_->InputLayoutOf(w, num_tokens);
  }
  void KeepDrawnTokens(int num_places) override { backend_->KeepDrawnTokens(num_places); }
  const BatchView* PrepareBatch(const BatchView* views, int num_views, int max_tokens) override {
    return backend_->PrepareBatch(views, num_views, max_tokens);
  }
  LayerRecorder* layer_recorder() override { return backend_->layer_recorder(); }
  BackendStatus SetGroup(Collective* group) override { return backend_->SetGroup(group); }
  void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, float scale, void* y) override {
    backend_->Embed(table, token_ids, num_tokens, scale, y);
  }
  void Round(const void* x, int num_rows, int dim, DataType y_type, void* y) override {
    backend_->Round(x, num_rows, dim, y_type, y);
  }
  void Linear(const LinearArgs& args) override { backend_->Linear(args); }
  void GatedLinear(const GatedLinearArgs& args) override { backend_->GatedLinear(args); }
  void Route(const RouteArgs& args) override { backend_->Route(args); }
  void ExpertMlp(const ExpertMlpArgs& args) override { backend_->ExpertMlp(args); }
  void Activate(const ActivateArgs& args) override { backend_->Activate(args); }
  void AddParts(const AddPartsArgs& args) override { backend_->AddParts(args); }
  void GatherColumns(const GatherColumnsArgs& args) override { backend_->GatherColumns(args); }
  void ExchangeRows(const ExchangeRowsArgs& args) override { backend_->ExchangeRows(args); }
  void RmsNorm(const RmsNormArgs& args) override { backend_->RmsNorm(args); }
  void RopeAppend(const RopeAppendArgs& args) override { backend_->RopeAppend(args); }
  void Attention(const AttentionArgs& args) override { backend_->Attention(args); }
  void GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) override {
    backend_->GatherRows(x, rows, num_rows, dim, y);
  }
  void ReadRows(const void* x, int num_rows, int dim, float* values) override {
    backend_->ReadRows(x, num_rows, dim, values);
  }
  void CopyBlocks(const BlockCopyArgs& args) override { backend_->CopyBlocks(args); }
  void SwapBlocks(const BlockSwapArgs& args) override { backend_->SwapBlocks(args); }
  void Sample(const SamplingArgs& args) override { backend_->Sample(args); }

 protected:
  Backend& backend() { return *backend_; }

 private:
  const std::unique_ptr<Backend> backend_;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_FORWARDING_BACKEND_H_
