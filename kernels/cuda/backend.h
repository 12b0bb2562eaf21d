// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_BACKEND_H_
#define QUIRE_KERNELS_CUDA_BACKEND_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/layer_graphs.h"
#include "kernels/cuda/quantized_products.h"
#include "kernels/cuda/rank_sums.h"
#include "kernels/cuda/rotary_table.h"
#include "kernels/cuda/rounded_products.h"
#include "kernels/cuda/sampler.h"
#include "kernels/cuda/upload_arena.h"

namespace quire::cuda {

struct CudaBackendOptions {
  // The type of weights, activations, K and V: bfloat16 or float16. Weights of other types are rounded to it.
  DataType element = DataType::kBFloat16;
  // Makes the result of a row independent of the other rows, as on the CPU. Prompts take longer.
  bool exact = false;
  // Records the layers of decode steps and repeats them.
  bool graphs = true;
  // Rounds the inputs of products by weights of int8 to 8 bits, as the CPU does. Otherwise these inputs keep 16 bits.
  bool rounds_int8_inputs = true;
  // Does the same with the inputs of products by weights of FP8 that have one scale for each row or for each block of
  // 128 x 128, unless `exact`, and if the device has the kernels for it.
  bool rounds_fp8_inputs = true;
  int num_ranks = 1;  // Of the group for which the device computes; their number decides the order of sums.
};

// The backend for GPUs. It queues operations in the order of the calls. CopyToDevice, CopyToHost, Free and FreeHost
// wait until everything that was queued before is done.
class CudaBackend : public Backend, private LayerRecorder {
 public:
  CudaBackend(std::unique_ptr<Device> device, const CudaBackendOptions& options);
  ~CudaBackend() override;

  void BindThreads() override {}
  std::string Description() const override { return device_->Description(); }
  std::string NumericsFingerprint() const override;
  bool IsAsynchronous() const override { return true; }
  uint64_t Mark() override { return device_->Mark(); }
  bool IsDone(uint64_t mark) override { return device_->IsDone(mark); }
  void Wait(uint64_t mark) override { device_->Wait(mark); }
  BackendStatus CheckLayout(const KvLayout& layout, int num_heads) const override;
  BackendStatus Reserve(const KvLayout& layout, int num_heads, const StepSizes& sizes) override;
  LayerRecorder* layer_recorder() override { return has_graphs_ ? this : nullptr; }
  BackendStatus SetGroup(Collective* group) override;

  std::optional<size_t> FreeBytes() const override { return device_->FreeBytes(); }
  std::optional<size_t> TotalBytes() const override { return device_->TotalBytes(); }
  void* Allocate(size_t bytes) override { return device_->Allocate(bytes); }
  void Free(void* memory) override;
  void* AllocateHost(size_t bytes) override { return device_->AllocateHost(bytes); }
  void FreeHost(void* memory) override;
  void CopyToDevice(void* destination, const void* source, size_t bytes) override;
  void CopyToHost(void* destination, const void* source, size_t bytes) override;
  DataType ActivationType() const override { return element_; }
  // Returns whether the kernels have a part. Has says the same of an object.
  static bool Supports(OptionalPart part) {
    return part != OptionalPart::kSinks && part != OptionalPart::kClampedSwiglu;
  }
  bool Has(OptionalPart part) const override { return Supports(part); }

  std::unique_ptr<PackedMatrix> Pack(const MatrixView* matrices, int num_matrices) override;
  std::unique_ptr<PackedMatrix> PackGated(const MatrixView& gate, const MatrixView& up) override;
  bool MultipliesQuantized() const override { return true; }
  bool MultipliesFp8() const override { return true; }
  bool RoundsQuantizedInputs(QuantizedFormat format, Fp8ScaleShape scales) const override;
  std::unique_ptr<PackedMatrix> PackQuantized(const QuantizedMatrixView* matrices, int num_matrices) override;
  std::unique_ptr<PackedMatrix> PackGatedQuantized(const QuantizedMatrixView& gate,
                                                   const QuantizedMatrixView& up) override;
  BackendStatus CheckQuantized(const PackedMatrix& w, const QuantizedMatrixView* matrices, int num_matrices) override;
  DataType InputType(const PackedMatrix&) const override { return element_; }

  void KeepDrawnTokens(int num_places) override { sampler_.KeepDrawnTokens(num_places); }
  const BatchView* PrepareBatch(const BatchView* views, int num_views, int max_tokens) override;
  void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, float scale, void* y) override;
  void Round(const void* x, int num_rows, int dim, DataType y_type, void* y) override;
  void Linear(const LinearArgs& args) override;
  void GatedLinear(const GatedLinearArgs& args) override;
  void Route(const RouteArgs& args) override { experts_.Route(args); }
  void ExpertMlp(const ExpertMlpArgs& args) override { experts_.Run(args); }
  void Activate(const ActivateArgs& args) override;
  void AddParts(const AddPartsArgs& args) override { rank_sums_.Run(args); }
  void GatherColumns(const quire::GatherColumnsArgs& args) override { rank_sums_.Run(args); }
  void ExchangeRows(const ExchangeRowsArgs& args) override;
  void RmsNorm(const RmsNormArgs& args) override;
  void RopeAppend(const RopeAppendArgs& args) override;
  void Attention(const quire::AttentionArgs& args) override;
  void GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) override;
  void ReadRows(const void* x, int num_rows, int dim, float* values) override;
  void CopyBlocks(const BlockCopyArgs& args) override;
  void SwapBlocks(const BlockSwapArgs& args) override;
  void Sample(const SamplingArgs& args) override;

 private:
  // This was announced to follow the layers of the batch.
  struct Outputs {
    const int32_t* rows;  // [num_rows], in host memory.
    int num_rows;
    int max_rows;
    SamplingArgs sampling;
  };

  void AnnounceOutputs(const int32_t* rows, int num_rows, int max_rows, const SamplingArgs& sampling) override {
    announced_ = Outputs{rows, num_rows, max_rows, sampling};
  }
  int NumOutputRows() const override { return num_output_rows_; }
  bool ReplayLayers(const void* model) override;
  bool EndLayers() override;
  void CopyResults() override { sampler_.CopyResults(outputs_.sampling); }

  void PrepareOutputs(int padded_tokens);
  // Returns the kernels for a layout of K and V. REQUIRES: CheckLayout is OK.
  const KernelTable& KernelsFor(const KvLayout& layout) const;
  // `has_room` is for RoundedProducts::Multiply.
  void Multiply(const void* x, const PackedMatrix& w, int num_tokens, void* y, DataType y_type, bool adds_to_y,
                bool has_room = false);
  void CheckOutput(DataType type) const;  // Ends the process when the kernels do not write `type`.
  // The two kinds of Linear with sums that a further kernel changes. `dim` is the number of rows of the matrix.
  void LogitProduct(const LinearArgs& args, int dim);
  void ScaledProduct(const LinearArgs& args, int dim);
  void AddBias(const float* bias, int num_rows, int dim, void* y);
  const float* Rotary(const RopeAppendArgs& args);

  const std::unique_ptr<Device> device_;
  const DataType element_;
  const bool exact_;
  const bool has_graphs_;
  const bool rounds_int8_inputs_;
  const bool rounds_fp8_inputs_;
  const int num_ranks_;
  const KernelTable& kernels_;  // The kernels that do not depend on the size of heads and blocks.
  CudaAttention attention_;
  Sampler sampler_;
  QuantizedProducts quantized_;
  RoundedProducts rounded_products_;
  CudaExperts experts_;
  CudaRankSums rank_sums_;
  std::vector<std::unique_ptr<RotaryTable>> rotary_tables_;  // One for each kind of layer, so one or two.
  int num_positions_ = 0;                                    // The positions that the rotary tables must have.
  size_t most_batch_bytes_ = 0;                              // Bytes of a batch without its plans.
  std::vector<BatchView> views_;                             // Of the batch. Their arrays are on the device.
  bool is_padded_ = false;            // The batch is a decode step, padded to a number of tokens that can be recorded.
  std::optional<Outputs> announced_;  // For the next batch.
  Outputs outputs_ = {};              // Of the batch, if num_output_rows_ is not 0.
  int num_output_rows_ = 0;
  const int32_t* output_rows_ = nullptr;  // [num_output_rows_], on the device.
  UploadArena batch_arena_;
  UploadArena rows_arena_;
  UploadArena copies_arena_;
  DeviceBuffer sums_;  // [RowsWithRoom(tokens), 2 * intermediate_size], or the hidden size where that is more.
  LayerGraphs graphs_;
  std::vector<CopyPiece> pieces_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_BACKEND_H_
