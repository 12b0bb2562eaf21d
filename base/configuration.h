// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_CONFIGURATION_H_
#define QUIRE_BASE_CONFIGURATION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/command_line.h"
#include "base/settings.h"

namespace quire {

// The flags of a service can be set on its command line, in its environment and in a file. The command line overrides
// the environment, which overrides the file. A value is checked even when another one overrides it.
//   command line   --max-step-ms=50              The last one counts.
//   environment    QUIRE_MANAGER_MAX_STEP_MS=50  The name consists of the program's and the flag's name.
//   file           max_step_ms: 50               YAML (config_file.h). --config or QUIRE_MANAGER_CONFIG names the file.
// For every Service, Kubernetes sets variables in containers. The variables of a Service named quire-manager have our
// prefix. They have endings that no flag's variable has (IsServiceLink), and are ignored. Every other unknown variable
// with the prefix is an error.

// Adds the flags --config, --check-config and --print-effective-config, which every service has.
void AddConfigurationFlags(Settings* table);

// Turns "quire-manager" and "max_step_ms" into "QUIRE_MANAGER_MAX_STEP_MS".
std::string EnvironmentVariable(absl::string_view program, absl::string_view flag);

// Returns whether Kubernetes sets variables of such names for Services, for example QUIRE_MANAGER_PORT,
// QUIRE_MANAGER_SERVICE_HOST and QUIRE_MANAGER_PORT_50051_TCP_ADDR.
bool IsServiceLink(absl::string_view variable);

// Returns the environment of this process as strings "NAME=value".
std::vector<const char*> ProcessEnvironment();

// Sets the values of `settings`, checks them, and calls `finish`, which checks what depends on several of them. Returns
// the text to print for --help and similar flags; then the values may not be complete. The log format is set first,
// because errors are printed in it.
absl::StatusOr<std::optional<std::string>> ReadConfiguration(const Settings& settings,
                                                             absl::Span<const char* const> arguments,
                                                             absl::Span<const char* const> environment,
                                                             absl::FunctionRef<absl::Status()> finish);

}  // namespace quire

#endif  // QUIRE_BASE_CONFIGURATION_H_
