#ifndef QUIRE_KV_MANAGER_PROCESS_OPTIONS_H_
#define QUIRE_KV_MANAGER_PROCESS_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/flags.h"
#include "base/log_flags.h"
#include "kv_manager/requests/inference_options.h"
#include "scheduler/scheduler_options.h"
#include "security/transport_flags.h"

namespace quire {

// What the page of the metrics port shows.
enum class StatusPageKind {
  kOff,    // There is none.
  kSums,   // Workers, blocks, rates.
  kNames,  // Also single requests, with names and tenants.
};

// The command line of quire-manager, checked.
struct ManagerOptions {
  std::vector<std::string> workers;  // host:port, unix:path, or dns:///name:port for all that the name resolves to.
  TlsFiles worker_tls;               // Without an authority: plain text.
  std::string worker_name;           // In the certificates of workers; empty: the host by which each is reached.
  std::string listen;
  Transport transport;
  std::string tokens;                     // File; empty: callers need none.
  std::vector<std::string> client_names;  // In the certificates of clients, if they show any.
  std::vector<std::string> admin_names;
  std::string health_listen;   // Empty: health is on `listen` alone.
  std::string metrics_listen;  // Empty: no metrics.
  SchedulerOptions scheduler;
  bool has_prefix_cache = true;
  double max_pinned_share = 0;
  int max_tenant_labels = 0;
  bool has_vllm_metrics = true;
  StatusPageKind status_page = StatusPageKind::kSums;
  InferenceServiceOptions inference;
  int max_step_ms;  // 0: no limit.
  absl::Duration step_timeout;
  absl::Duration worker_grace;
  absl::Duration worker_keepalive_timeout;
  absl::Duration drain_timeout;
  LogOptions log;
};

// Its flags. The names belong to the process.
const ProgramFlags& ManagerFlags();

// `arguments` without the program's name, `environment` as "NAME=value". INVALID_ARGUMENT, in one line that names flag,
// value and limit, and where the value is from.
absl::StatusOr<CommandLine<ManagerOptions>> ParseManagerCommandLine(absl::Span<const char* const> arguments,
                                                                    absl::Span<const char* const> environment = {});

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_OPTIONS_H_
