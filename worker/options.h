#ifndef QUIRE_WORKER_OPTIONS_H_
#define QUIRE_WORKER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/log.h"
#include "kernels/types.h"
#include "worker/pool_size.h"

namespace quire {

// The command line of quire-worker, checked.
struct WorkerOptions {
  std::string model;       // Directory.
  std::string model_name;  // The directory's last part when not given.
  std::string listen;
  std::string metrics_listen;  // Empty: no metrics.
  int block_size;
  PoolRequest pool;
  bool prefault;
  std::optional<DataType> kv_type;  // None: as the weights.
  int max_sequences;
  int max_tokens_per_step;
  int threads;  // 0: one per core.
  LogLevel log_level;
};

// What the command line asks for.
struct WorkerCommandLine {
  std::optional<std::string> text;  // --help or --version: print this and leave.
  WorkerOptions options;            // Otherwise.
};

// Flags are --name=value or --name value; dashes and underscores in names are the same. INVALID_ARGUMENT, in one line,
// for a flag that does not exist, a value that is not allowed, and words that belong to no flag. Sets process-wide
// flags: call it once.
absl::StatusOr<WorkerCommandLine> ParseWorkerCommandLine(absl::Span<const char* const> arguments);

}  // namespace quire

#endif  // QUIRE_WORKER_OPTIONS_H_
