#ifndef QUIRE_BENCH_WORKER_SPEED_H_
#define QUIRE_BENCH_WORKER_SPEED_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/load/samples.h"
#include "bench/timed_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/types.h"

namespace quire {

// Sequences that arrive together: one request each, or the beams of one request.
struct WorkerSpeedOptions {
  std::string model = "models/tales";  // Directory.
  int num_sequences = 16;
  int num_beams = 0;  // Above 0: num_sequences is 1, and so many beams continue its prompt.
  int prompt_tokens = 128;
  int shared_tokens = 0;   // The first ones of all prompts, computed once; below prompt_tokens.
  int output_tokens = 64;  // Of every sequence.
  int threads = 0;         // 0: one per core.
  cpu::Isa cpu_kernels = cpu::SupportedIsas().back();
  DataType kv_type = DataType::kBFloat16;
};

struct WorkerSpeed {
  int64_t prefill_tokens = 0;      // Of prompts, as far as they were computed.
  double prefill_seconds = 0;      // Of the steps before all sequences decode.
  int64_t total_tokens = 0;        // Generated, over all steps.
  double total_seconds = 0;        // Of the executor in all steps.
  int decode_rows = 0;             // Sequences of a step in which all decode.
  Samples decode_us;               // Of the executor in such a step.
  Samples overhead_us;             // The rest of such a step: plan, messages, rows, commit; all that is not a kernel.
  KernelSeconds decode_kernels{};  // Over these steps.
  int64_t kv_bytes = 0;            // Blocks that hold K and V of a sequence, at most.

  double prefill_tokens_per_s() const { return static_cast<double>(prefill_tokens) / prefill_seconds; }
  double total_tokens_per_s() const { return static_cast<double>(total_tokens) / total_seconds; }
  double decode_tokens_per_s() const { return 1e6 * decode_rows / decode_us.Mean(); }
};

// The production scheduler and the real executor in one thread, without a network. INVALID_ARGUMENT for lengths that do
// not fit the model's context, or so short an output that no step decodes all sequences.
absl::StatusOr<WorkerSpeed> MeasureWorkerSpeed(const WorkerSpeedOptions& options);

}  // namespace quire

#endif  // QUIRE_BENCH_WORKER_SPEED_H_
