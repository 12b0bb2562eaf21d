// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_WORKER_SPEED_H_
#define QUIRE_BENCH_WORKER_SPEED_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "bench/timed_backend.h"
#include "client/load/samples.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/types.h"
#include "worker/model/quantize.h"

namespace quire {

// The sequences arrive together. Each is a request, or all are the beams of one request.
struct WorkerSpeedOptions {
  std::string model = "models/tales";  // Directory.
  int num_sequences = 16;
  int num_beams = 0;  // Number of beams that continue its prompt; above 0, num_sequences is 1.
  int prompt_tokens = 128;
  int shared_tokens = 0;   // All prompts begin with these tokens, computed once; below prompt_tokens.
  int output_tokens = 64;  // Output of every sequence.
  int threads = 0;         // 0 means one per core. With one thread, times of steps are CPU time, which is less noisy.
  cpu::Isa cpu_kernels = cpu::SupportedIsas().back();
  KvType kv_type = KvType::kBFloat16;
  WeightRounding rounding;
};

struct WorkerSpeed {
  int64_t prefill_tokens = 0;       // Prompt tokens that were computed.
  double prefill_seconds = 0;       // Time of the steps before all sequences decode.
  KernelSeconds prefill_kernels{};  // Time per kernel in these steps.
  int64_t total_tokens = 0;         // Tokens generated in all steps.
  double total_seconds = 0;         // Time of the executor in all steps.
  int decode_rows = 0;              // Sequences in a step in which all decode.
  Samples decode_us;                // Time of the executor in such a step.
  Samples overhead_us;              // Time of such a step outside the kernels: plan, messages, rows, commit.
  KernelSeconds decode_kernels{};   // Time per kernel in these steps.
  Samples used_experts;             // Experts that a layer with experts uses in such a step, in the mean; 0 without.
  int64_t kv_bytes = 0;             // Most bytes of blocks that hold K and V of sequences.

  double prefill_tokens_per_s() const { return static_cast<double>(prefill_tokens) / prefill_seconds; }
  double total_tokens_per_s() const { return static_cast<double>(total_tokens) / total_seconds; }
  double decode_tokens_per_s() const { return 1e6 * decode_rows / decode_us.Mean(); }
};

// Runs the production scheduler and the real executor in one thread, without a network. INVALID_ARGUMENT when the
// lengths do not fit the model's context, or when the output is so short that no step decodes all sequences.
absl::StatusOr<WorkerSpeed> MeasureWorkerSpeed(const WorkerSpeedOptions& options);

}  // namespace quire

#endif  // QUIRE_BENCH_WORKER_SPEED_H_
