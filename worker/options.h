#ifndef QUIRE_WORKER_OPTIONS_H_
#define QUIRE_WORKER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/flags.h"
#include "base/log_flags.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/types.h"
#include "security/transport_flags.h"
#include "worker/pool_size.h"

namespace quire {

// The command line of quire-worker, checked.
struct WorkerOptions {
  std::string model;       // Directory.
  std::string model_name;  // The directory's last part when not given.
  std::string listen;
  Transport transport;
  std::vector<std::string> manager_names;  // In the certificate of the manager, if it shows one.
  std::string health_listen;               // Empty: health is on `listen` alone.
  std::string metrics_listen;              // Empty: no metrics.
  int block_size;
  PoolRequest pool;
  int64_t swap_bytes = 0;  // Of the host tier; 0: none.
  bool prefault;
  std::optional<DataType> kv_type;  // None: as the weights.
  std::optional<int> gpu;           // Which one, as CUDA counts them; none: the CPU.
  bool exact_gpu = false;           // A row's result does not depend on the rows beside it.
  std::string gpu_tuning_cache;     // File; empty: none.
  int max_sequences;
  int max_tokens_per_step;
  int threads;                          // 0: one per core.
  bool bind_threads;                    // To a core each, if there are as many.
  std::optional<cpu::Isa> cpu_kernels;  // One that the machine has; none: the best.
  absl::Duration drain_timeout;         // Of the session, after the first signal to stop.
  LogOptions log;
};

// Its flags. The names belong to the process.
const ProgramFlags& WorkerFlags();

// `arguments` without the program's name, `environment` as "NAME=value". INVALID_ARGUMENT, in one line that names flag,
// value and limit, and where the value is from.
absl::StatusOr<CommandLine<WorkerOptions>> ParseWorkerCommandLine(absl::Span<const char* const> arguments,
                                                                  absl::Span<const char* const> environment = {});

}  // namespace quire

#endif  // QUIRE_WORKER_OPTIONS_H_
