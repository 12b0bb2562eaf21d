// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_BACKEND_H_
#define QUIRE_KERNELS_CPU_BACKEND_H_

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/rank_sums.h"
#include "kernels/cpu/rope_append.h"
#include "kernels/cpu/rotary_table.h"
#include "kernels/cpu/sampling.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/half_float.h"

namespace quire::cpu {

// The backend for CPUs. Activations are float32; weights, K and V keep their own precision. Every operation runs on all
// threads of the pool and is done when its call returns.
class CpuBackend : public Backend {
 public:
  // REQUIRES: num_threads >= 1, isa is one of SupportedIsas().
  CpuBackend(int num_threads, Isa isa);

  void BindThreads() override { pool_.BindToCores(); }
  std::string Description() const override;
  std::string NumericsFingerprint() const override;

  bool IsAsynchronous() const override { return false; }
  uint64_t Mark() override { return 0; }
  bool IsDone(uint64_t) override { return true; }
  void Wait(uint64_t) override {}
  BackendStatus CheckLayout(const KvLayout& layout, int num_heads) const override;
  BackendStatus Reserve(const KvLayout&, int, const StepSizes&) override { return BackendStatus::Ok(); }
  std::optional<size_t> FreeBytes() const override { return std::nullopt; }
  std::optional<size_t> TotalBytes() const override { return std::nullopt; }
  void* Allocate(size_t bytes) override;
  void Free(void* memory) override;
  void* AllocateHost(size_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* memory) override { Free(memory); }
  void CopyToDevice(void* destination, const void* source, size_t bytes) override;
  void CopyToHost(void* destination, const void* source, size_t bytes) override;
  DataType ActivationType() const override { return DataType::kFloat32; }
  bool Has(OptionalPart) const override { return true; }

  std::unique_ptr<PackedMatrix> Pack(const MatrixView* matrices, int num_matrices) override;
  std::unique_ptr<PackedMatrix> PackGated(const MatrixView& gate, const MatrixView& up) override;
  bool MultipliesQuantized() const override { return true; }
  // There is no kernel with tiles for FP8, and the generic one converts slowly.
  bool MultipliesFp8() const override { return isa_ != Isa::kAmx && isa_ != Isa::kGeneric; }
  std::unique_ptr<PackedMatrix> PackQuantized(const QuantizedMatrixView* matrices, int num_matrices) override;
  std::unique_ptr<PackedMatrix> PackGatedQuantized(const QuantizedMatrixView& gate,
                                                   const QuantizedMatrixView& up) override;
  // There is no kernel with tiles, so long prompts would be slower.
  bool MultipliesBlocks() const override { return isa_ != Isa::kAmx; }
  std::unique_ptr<PackedMatrix> PackBlocks(const BlockMatrixView* matrices, int num_matrices) override;
  std::unique_ptr<PackedMatrix> PackGatedBlocks(const BlockMatrixView& gate, const BlockMatrixView& up) override;
  DataType InputType(const PackedMatrix& w) const override;
  InputLayout InputLayoutOf(const PackedMatrix& w, int num_tokens) const override;
  void KeepDrawnTokens(int) override {}
  const BatchView* PrepareBatch(const BatchView* views, int num_views, int) override {
    views_.assign(views, views + num_views);
    return views_.data();
  }
  void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, float scale, void* y) override;
  void Round(const void* x, int num_rows, int dim, DataType y_type, void* y) override;
  void Linear(const LinearArgs& args) override;
  void GatedLinear(const GatedLinearArgs& args) override;
  void Route(const RouteArgs& args) override { experts_.Route(args); }
  void ExpertMlp(const ExpertMlpArgs& args) override { experts_.Run(args); }
  void Activate(const ActivateArgs& args) override;
  void AddParts(const AddPartsArgs& args) override { rank_sums_.Run(args); }
  void GatherColumns(const GatherColumnsArgs& args) override { rank_sums_.Run(args); }
  void ExchangeRows(const ExchangeRowsArgs& args) override { rank_sums_.Run(args); }
  void RmsNorm(const RmsNormArgs& args) override;
  void RopeAppend(const RopeAppendArgs& args) override;
  void Attention(const AttentionArgs& args) override;
  void GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) override;
  void ReadRows(const void* x, int num_rows, int dim, float* values) override;
  void CopyBlocks(const BlockCopyArgs& args) override;
  void SwapBlocks(const BlockSwapArgs& args) override;
  void Sample(const SamplingArgs& args) override;

 private:
  const RotaryTable& PrepareRotary(const RopeAppendArgs& args);
  // Makes float_rows_ long enough.
  void MakeFloatRows(int dim);
  void NormToTiles(const RmsNormArgs& args);
  // Norms rows of which only some columns are stored.
  void NormColumns(const RmsNormArgs& args);
  // Returns where the row of x to norm is: in x, or without its mean in the memory of a thread.
  const float* NormInput(const RmsNormArgs& args, int row, int thread);

  const Isa isa_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  CpuLinear linear_;
  CpuExperts experts_;
  CpuRankSums rank_sums_;
  CpuAttention attention_;
  CpuSampler sampler_;
  std::vector<BatchView> views_;
  std::vector<AppendRun> append_runs_;
  std::vector<std::vector<BFloat16>> normed_rows_;           // A row for each thread.
  std::vector<std::vector<float>> float_rows_;               // A row for each thread.
  std::vector<std::unique_ptr<RotaryTable>> rotary_tables_;  // One for each kind of layer, so one or two.
  std::unordered_map<void*, Memory> allocations_;
};

// Makes a backend for one instruction set. `num_threads` is as in kernels/backend.h. REQUIRES: `isa` is one of
// SupportedIsas().
std::unique_ptr<Backend> MakeCpuBackend(int num_threads, Isa isa);

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_BACKEND_H_
