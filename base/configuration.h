// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_CONFIGURATION_H_
#define QUIRE_BASE_CONFIGURATION_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/flags.h"
#include "base/status.h"

namespace quire {

// The flags of a service can be set on its command line, in its environment and in a file. The command line overrides
// the environment, which overrides the file. A value is checked even when another one overrides it.
//   command line   --max-step-ms=50              The last one counts.
//   environment    QUIRE_MANAGER_MAX_STEP_MS=50  The name consists of the program's and the flag's name.
//   file           max_step_ms: 50               YAML (config_file.h). --config or QUIRE_MANAGER_CONFIG names the file.
// For every Service, Kubernetes sets variables in containers. The variables of a Service named quire-manager have our
// prefix. They have endings that no flag's variable has (IsServiceLink), and are ignored. Every other unknown variable
// with the prefix is an error.

// The flags --config, --check-config and --print-effective-config, which every service has.
FlagGroup ConfigurationFlagGroup();

// Turns "quire-manager" and "max_step_ms" into "QUIRE_MANAGER_MAX_STEP_MS".
std::string EnvironmentVariable(absl::string_view program, absl::string_view flag);

// Returns whether Kubernetes sets variables of such names for Services, for example QUIRE_MANAGER_PORT,
// QUIRE_MANAGER_SERVICE_HOST and QUIRE_MANAGER_PORT_50051_TCP_ADDR.
bool IsServiceLink(absl::string_view variable);

// Returns the environment of this process as strings "NAME=value".
std::vector<const char*> ProcessEnvironment();

namespace internal {

struct Configuration {
  std::optional<std::string> text;  // The text to print for --help or --version.
  // They say where the value of each flag comes from, if it is not the default.
  std::map<std::string, std::string> sources;
};

absl::StatusOr<Configuration> SetFlagsFromAll(const ProgramFlags& flags, absl::Span<const char* const> arguments,
                                              absl::Span<const char* const> environment);

// Returns the text to print for --check-config or --print-effective-config, if one of them is set.
std::optional<std::string> AskedText(const ProgramFlags& flags, const Configuration& configuration);

}  // namespace internal

// Sets the flags and the log format, or returns the text to print for --help and similar flags. The log format is set
// first, because errors are printed in it. `make_options` checks the flags and makes options of them. Call it once,
// because flags belong to the process.
template <typename Options>
absl::StatusOr<CommandLine<Options>> ReadConfiguration(const ProgramFlags& flags,
                                                       absl::Span<const char* const> arguments,
                                                       absl::Span<const char* const> environment,
                                                       absl::FunctionRef<absl::StatusOr<Options>()> make_options) {
  const auto line = std::make_unique<CommandLine<Options>>();  // The options of a program are large.
  QUIRE_ASSIGN_OR_RETURN(const internal::Configuration configuration,
                         internal::SetFlagsFromAll(flags, arguments, environment));
  line->text = configuration.text;
  if (line->text) return std::move(*line);
  absl::StatusOr<Options> options = make_options();
  if (!options.ok()) return WithSources(options.status(), configuration.sources);
  line->text = internal::AskedText(flags, configuration);
  line->options = *std::move(options);
  return std::move(*line);
}

}  // namespace quire

#endif  // QUIRE_BASE_CONFIGURATION_H_
