// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_PROCESS_OPTIONS_H_
#define QUIRE_KV_MANAGER_PROCESS_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/command_line.h"
#include "base/service_flags.h"
#include "base/settings.h"
#include "base/trace_flags.h"
#include "base/web_access.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/engine/step_loop_options.h"
#include "kv_manager/engine/wait_forecast.h"
#include "kv_manager/process/standby_flags.h"
#include "kv_manager/requests/inference_options.h"
#include "scheduler/scheduler_options.h"
#include "security/transport_flags.h"

namespace quire {

// The content of the status page on the metrics port.
enum class StatusPageKind {
  kOff,    // There is no page.
  kSums,   // Workers, blocks and rates.
  kNames,  // It also shows single requests with their names and tenants.
};

// The command line of quire-manager, after all checks.
struct ManagerOptions {
  // host:port, unix:path, or dns:///name:port for all that the name resolves to.
  std::vector<std::string> workers = {"127.0.0.1:50061"};
  TlsFiles worker_tls;  // Without an authority, connections are plain text.
  // Expected in the certificates of workers. Empty: the host in each worker's address.
  std::string worker_name = "quire-worker";
  std::string listen = "127.0.0.1:50051";
  Transport transport;
  std::string tokens;   // A file. Empty: callers need no token.
  std::string tenants;  // A file. Empty: the shares of `scheduler` are the only limits of tenants.
  std::vector<std::string> client_names = {"quire-client"};  // Accepted in the certificates of clients.
  std::vector<std::string> admin_names = {"quire-admin"};
  std::string health_listen;                      // Empty: only `listen` answers health checks.
  std::string metrics_listen = "127.0.0.1:9460";  // Empty: there are no metrics.
  int max_connections = kDefaultMaxConnections;   // It limits those at `listen`.
  WebAccess web_access;                           // For `metrics_listen`.
  StandbyOptions standby;
  SchedulerOptions scheduler;
  std::vector<std::string> tenant_weights;  // Such as "a=2". They become scheduler.tenants.
  bool has_prefix_cache = true;
  WaitLimits wait_limits;
  absl::Duration max_queue_wait = absl::Seconds(5);  // Becomes wait_limits.max_wait_us.
  double max_pinned_share = StepLoopOptions().max_pinned_share;
  int64_t max_worker_bytes = StepLoopOptions().max_worker_bytes;  // See StepLoopOptions.
  int max_tenant_labels = ManagerEngine::kMaxTenantLabels;
  bool has_vllm_metrics = true;
  StatusPageKind status_page = StatusPageKind::kSums;
  InferenceServiceOptions inference;
  std::string resume_key_file;  // Has the secret of inference.detach.resume_key. Empty: there is none.
  int max_step_ms = 300;        // 0: steps have no limit.
  absl::Duration step_timeout = absl::Microseconds(WorkerLinkOptions().step_timeout_us);
  bool changes_numerics = false;                                                            // See StepLoopOptions.
  absl::Duration failover_after = absl::Microseconds(StepLoopOptions().failover_after_us);  // 0: at once.
  bool rebalances = true;
  absl::Duration adopt_window = absl::Seconds(5);  // 0: nothing is adopted.
  absl::Duration worker_grace = absl::Microseconds(StepLoopOptions().worker_grace_us);
  absl::Duration worker_keepalive_timeout = absl::Seconds(30);
  absl::Duration drain_timeout = absl::Seconds(30);
  LogOptions log;
  TraceOptions traces;
};

// The table of the settings of quire-manager, which are read into `options`.
Settings ManagerSettings(ManagerOptions* options);

// `arguments` are without the program's name; entries of `environment` are "NAME=value". INVALID_ARGUMENT names the
// flag, the value, the limit, and where the value comes from, in one line.
absl::StatusOr<CommandLine<ManagerOptions>> ParseManagerCommandLine(absl::Span<const char* const> arguments,
                                                                    absl::Span<const char* const> environment = {});

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_OPTIONS_H_
