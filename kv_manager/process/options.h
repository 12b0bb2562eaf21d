// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_PROCESS_OPTIONS_H_
#define QUIRE_KV_MANAGER_PROCESS_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/flags.h"
#include "base/log_flags.h"
#include "base/trace_flags.h"
#include "base/web_access.h"
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
  std::vector<std::string> workers;  // host:port, unix:path, or dns:///name:port for all that the name resolves to.
  TlsFiles worker_tls;               // Without an authority, connections are plain text.
  std::string worker_name;  // Expected in the certificates of workers. Empty: the host in each worker's address.
  std::string listen;
  Transport transport;
  std::string tokens;                     // A file. Empty: callers need no token.
  std::string tenants;                    // A file. Empty: the shares of `scheduler` are the only limits of tenants.
  std::vector<std::string> client_names;  // Accepted in the certificates of clients.
  std::vector<std::string> admin_names;
  std::string health_listen;   // Empty: only `listen` answers health checks.
  std::string metrics_listen;  // Empty: there are no metrics.
  int max_connections;         // It limits those at `listen`.
  WebAccess web_access;        // For `metrics_listen`.
  StandbyOptions standby;
  SchedulerOptions scheduler;
  bool has_prefix_cache = true;
  WaitLimits wait_limits;
  double max_pinned_share = 0;
  int64_t max_worker_bytes = 0;  // See StepLoopOptions.
  int max_tenant_labels = 0;
  bool has_vllm_metrics = true;
  StatusPageKind status_page = StatusPageKind::kSums;
  InferenceServiceOptions inference;
  int max_step_ms;  // 0: steps have no limit.
  absl::Duration step_timeout;
  bool changes_numerics;          // See StepLoopOptions.
  absl::Duration failover_after;  // 0: at once.
  bool rebalances;
  absl::Duration adopt_window;  // 0: nothing is adopted.
  absl::Duration worker_grace;
  absl::Duration worker_keepalive_timeout;
  absl::Duration drain_timeout;
  LogOptions log;
  TraceOptions traces;
};

// The flags of quire-manager. They are global in the process.
const ProgramFlags& ManagerFlags();

// `arguments` are without the program's name; entries of `environment` are "NAME=value". INVALID_ARGUMENT names the
// flag, the value, the limit, and where the value comes from, in one line.
absl::StatusOr<CommandLine<ManagerOptions>> ParseManagerCommandLine(absl::Span<const char* const> arguments,
                                                                    absl::Span<const char* const> environment = {});

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_OPTIONS_H_
