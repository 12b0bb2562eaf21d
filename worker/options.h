// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_OPTIONS_H_
#define QUIRE_WORKER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/command_line.h"
#include "base/service_flags.h"
#include "base/settings.h"
#include "base/web_access.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/cuda/device_options.h"
#include "kernels/cuda/open_device.h"
#include "kernels/kv_layout.h"
#include "kernels/simulated/step_times.h"
#include "security/transport_flags.h"
#include "worker/model/quantize.h"
#include "worker/pool_size.h"
#include "worker/rank_hosts.h"

namespace quire {

// The options of --device=simulated.
struct SimulationOptions {
  simulated::StepTimes step_times;
  int mean_output_tokens = 0;  // 0: the model never ends an output.
};

// The options of quire-worker, read from its command line and checked.
struct WorkerOptions {
  std::string model;           // The model directory, a GGUF file, or a valid name of the hub (model/hub_cache.h).
  std::string explain_memory;  // If not empty, the model whose memory is explained instead of a start.
  std::optional<int64_t> gpu_memory;  // The GPU's, for explain_memory. Without a value, it is read.
  std::string model_name;             // The last part of the path by default, or owner/name of the hub.
  std::string listen = "127.0.0.1:50061";
  Transport transport;
  // One of them must be in the manager's certificate, if it shows one.
  std::vector<std::string> manager_names = {"quire-manager"};
  std::string health_listen;                      // If empty, health checks are answered only at `listen`.
  std::string metrics_listen = "127.0.0.1:9461";  // If empty, no metrics are served.
  int max_connections = kDefaultMaxConnections;   // Limit at `listen`.
  WebAccess web_access;                           // For `metrics_listen`.
  int block_size = 16;
  bool divides_by_windows = false;  // Whether layers with a window keep their K and V apart (cache_grouping.h).
  PoolRequest pool;
  int64_t swap_bytes = 0;  // The size of the host tier, or 0 for none.
  bool prefault = false;
  WeightRounding rounding;
  bool long_context = false;
  std::optional<KvType> kv_type;  // Without a value, it is the type of the weights.
  std::string device = "cpu";     // As in the flag, for messages.
  std::optional<int> gpu;         // The number of the GPU as CUDA counts them. Without a value, the CPU computes.
  bool exact_gpu = false;         // Whether a row's result must be independent of the other rows of the step.
  std::string gpu_tuning_cache;   // The path of a file, or empty.
  std::string gpu_library;        // The path of libquire_cuda.so. If empty, it is beside the program.
  bool gpu_graphs = true;         // Whether to record the layers of decode steps and repeat them.
  bool gpu_overlap = false;       // Whether to set up each kernel while the one before it ends.
  bool gpu_warp_groups = true;    // Whether to use the kernels that only compute capability 9.0 has.
  bool gpu_int8_inputs = true;    // Whether products by int8 round their inputs to 8 bits, as on a CPU.
  bool gpu_fp8_inputs = true;     // Whether products by FP8 round their inputs to FP8, where that is possible.
  // Work on the GPU that takes longer ends the worker.
  absl::Duration gpu_timeout = absl::FromChrono(cuda::DeviceOptions().longest_wait);
  absl::Duration gpu_record_time = absl::Seconds(5);  // How long a start may record decode steps.
  std::optional<SimulationOptions> simulation;        // With a value, no device computes, and `gpu` has none.
  int max_sequences = 256;
  int max_tokens_per_step = 2048;
  int num_ranks = 1;                    // Processes that hold the model together.
  RankHosts rank_hosts;                 // Where they run.
  std::optional<int> rank;              // The place of this process among them. Without a value, it starts them.
  std::string group_id;                 // Of the ranks. It is not empty if `rank` has a value.
  int threads = 0;                      // 0 means one per core.
  bool bind_threads = true;             // Whether to bind each thread to a core, if there are enough.
  std::optional<cpu::Isa> cpu_kernels;  // The machine supports it. Without a value, the best one is used.
  // How long rows and blocks stay after the end of a session. 0: not at all.
  absl::Duration orphan_hold = absl::Seconds(30);
  // How long the session may continue after the first signal to stop.
  absl::Duration drain_timeout = absl::Seconds(30);
  LogOptions log;
};

// The options, and the values of flags of which Finish makes some of them.
struct WorkerFlags : WorkerOptions {
  std::string gpu_memory_text;
  std::string kv_bytes;
  int64_t num_blocks = 0;
  double memory_fraction = 0;
  std::string swap_text = "0";
  std::string tp_hosts;
  int tp_host = -1;
  std::string tp_network;
  int rank_number = -1;
  std::string step_times;
  int mean_output_tokens = 0;
};

// The table of the settings of quire-worker, which are read into `options`.
Settings WorkerSettings(WorkerFlags* options);

// Reads the command line. `arguments` does not include the program's name; `environment` consists of "NAME=value".
// Returns INVALID_ARGUMENT with one line that names the flag, its value, the limit and where the value comes from.
// --explain-memory opens a GPU with `open_device`, if --gpu-memory does not describe one.
absl::StatusOr<CommandLine<WorkerOptions>> ParseWorkerCommandLine(absl::Span<const char* const> arguments,
                                                                  absl::Span<const char* const> environment = {},
                                                                  cuda::DeviceOpener open_device = &cuda::OpenDevice);

}  // namespace quire

#endif  // QUIRE_WORKER_OPTIONS_H_
