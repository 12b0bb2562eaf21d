// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMULATED_BACKEND_H_
#define QUIRE_KERNELS_SIMULATED_BACKEND_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cpu/backend.h"
#include "kernels/simulated/step_times.h"
#include "kernels/simulated/token_rule.h"

namespace quire::simulated {

// A matrix without numbers. Multiplying by it copies the input, or does nothing.
class Matrix : public PackedMatrix {
 public:
  explicit Matrix(bool copies) : copies(copies) {}

  const bool copies;
};

// A device that computes nothing. It runs the transformer for a model of one layer whose rows of activations have the
// size of a number of 64 bits (worker/model/simulated_model.h). What the pool keeps and what the logits are is in
// token_rule.h. Blocks are really copied and swapped, and tokens are really drawn, by the operations of the CPU backend
// with its generic kernels, so that all machines draw the same tokens. A step ends when the time that `times` gives it
// has passed since its batch was prepared, or later if the machine is slower.
class SimulatedBackend : public cpu::CpuBackend {
 public:
  SimulatedBackend(TokenRule rule, const StepTimes& times);

  // The shape of the model that it runs.
  static constexpr int kHiddenSize = 2;  // Two floats of 32 bits.
  static constexpr int kHeadDim = 2;
  static constexpr KvType kKvType = KvType::kBFloat16;  // Two numbers of 16 bits each in K and V: 64 bits.

  void BindThreads() override {}
  std::string Description() const override { return "simulated"; }
  std::string NumericsFingerprint() const override;

  // A mark is the time at which the step ends, in nanoseconds of the steady clock.
  uint64_t Mark() override { return end_ns_; }
  // Waits until then. Returns at once after Interrupt.
  void Wait(uint64_t mark) override;
  // Ends the wait for the time of a step, now and in the future. Thread-safe.
  void Interrupt();

  BackendStatus CheckLayout(const KvLayout& layout, int num_heads) const override;
  DataType InputType(const PackedMatrix&) const override { return DataType::kFloat32; }
  InputLayout InputLayoutOf(const PackedMatrix&, int) const override { return InputLayout::kRows; }
  const BatchView* PrepareBatch(const BatchView* views, int num_views, int max_tokens) override;
  void Embed(const PackedMatrix&, const int32_t*, int, float, void*) override {}
  void Linear(const LinearArgs& args) override;
  void GatedLinear(const GatedLinearArgs&) override {}
  void RmsNorm(const RmsNormArgs& args) override;
  // Reads the hashes of all slots of the contexts, and writes the hashes of the new tokens.
  void RopeAppend(const RopeAppendArgs& args) override;
  // Writes the sum after each token as its row.
  void Attention(const AttentionArgs& args) override;
  // A row of activations is the sum after its token. Its values are EmbeddingOf(sum).
  void ReadRows(const void* x, int num_rows, int dim, float* values) override;
  // The first num_rows * 8 bytes of `logits` are the sums from which the rows of logits are made. Rows that only need
  // the best token are drawn without making them.
  void Sample(const SamplingArgs& args) override;

 private:
  const TokenRule rule_;
  const StepTimes times_;

  std::vector<uint64_t> sums_;  // [num_tokens], of the tokens in the batch.
  std::vector<float> logits_;   // [vocab_size], one row.
  uint64_t end_ns_ = 0;

  std::mutex mutex_;
  std::condition_variable interrupted_;
  bool is_interrupted_ = false;  // Guarded by mutex_.
};

}  // namespace quire::simulated

#endif  // QUIRE_KERNELS_SIMULATED_BACKEND_H_
