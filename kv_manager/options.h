#ifndef QUIRE_KV_MANAGER_OPTIONS_H_
#define QUIRE_KV_MANAGER_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/log.h"
#include "scheduler/scheduler_options.h"

namespace quire {

// The command line of quire-manager.
struct ManagerOptions {
  std::vector<std::string> workers;  // host:port, unix:path, or dns:///name:port for all that the name resolves to.
  std::string listen;
  std::string metrics_listen;  // Empty: no metrics.
  SchedulerOptions scheduler;
  absl::Duration step_timeout;
  absl::Duration worker_grace;
  absl::Duration drain_timeout;
  LogLevel log_level = LogLevel::kInfo;
};

// `args` without the program's name. --flag=value or --flag value, dashes and underscores alike. The error is one line
// that names flag, value and limit.
absl::StatusOr<ManagerOptions> ParseOptions(absl::Span<const char* const> args);

// Whether --help or --version was asked for, which come before everything else.
bool HasFlag(absl::Span<const char* const> args, absl::string_view flag);

// Every flag with its default.
std::string OptionsHelp();

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_OPTIONS_H_
