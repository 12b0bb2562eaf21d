#ifndef QUIRE_BASE_CONFIGURATION_H_
#define QUIRE_BASE_CONFIGURATION_H_

#include <map>
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

// The flags of a service, given on its command line, in its environment or in a file. The first of these that names a
// flag has the say; a value is checked even where another one goes before it.
//   command line   --max-step-ms=50              of several the last
//   environment    QUIRE_MANAGER_MAX_STEP_MS=50  the program's name, the flag's name
//   file           max_step_ms: 50               YAML, see config_file.h; --config names it, or QUIRE_MANAGER_CONFIG
// Kubernetes puts variables of its own into containers that a Service quire-manager would give our prefix. They end as
// no flag's variable does (IsServiceLink) and are passed over; any other unknown variable with the prefix is an error.

// --config, --check-config and --print-effective-config, for the groups of a program.
FlagGroup ConfigurationFlagGroup();

// "quire-manager", "max_step_ms" to "QUIRE_MANAGER_MAX_STEP_MS".
std::string EnvironmentVariable(absl::string_view program, absl::string_view flag);

// Whether Kubernetes makes variables of such names for Services: QUIRE_MANAGER_PORT, .._SERVICE_HOST,
// .._PORT_50051_TCP_ADDR and so on.
bool IsServiceLink(absl::string_view variable);

// The environment of this process, "NAME=value" each.
std::vector<const char*> ProcessEnvironment();

namespace internal {

struct Configuration {
  std::optional<std::string> text;             // --help or --version.
  std::map<std::string, std::string> sources;  // Of the flags that are not at their defaults.
};

absl::StatusOr<Configuration> SetFlagsFromAll(const ProgramFlags& flags, absl::Span<const char* const> arguments,
                                              absl::Span<const char* const> environment);

// `error` with the places of the values that it names, as in
// "--watermark is 2, it must be in [0, 1) (--watermark is from quire.yaml:3)".
absl::Status WithSources(const absl::Status& error, const Configuration& configuration);

// What --check-config or --print-effective-config print.
std::optional<std::string> AskedText(const ProgramFlags& flags, const Configuration& configuration);

}  // namespace internal

// Sets the flags (and at once the log's format, in which errors are told), or finds the text that --help and its like
// ask for. `make_options` makes options of the flags, and says what is wrong with them. Flags belong to the process:
// call it once.
template <typename Options>
absl::StatusOr<CommandLine<Options>> ReadConfiguration(const ProgramFlags& flags,
                                                       absl::Span<const char* const> arguments,
                                                       absl::Span<const char* const> environment,
                                                       absl::FunctionRef<absl::StatusOr<Options>()> make_options) {
  CommandLine<Options> line;
  QUIRE_ASSIGN_OR_RETURN(const internal::Configuration configuration,
                         internal::SetFlagsFromAll(flags, arguments, environment));
  line.text = configuration.text;
  if (line.text) return line;
  absl::StatusOr<Options> options = make_options();
  if (!options.ok()) return internal::WithSources(options.status(), configuration);
  line.text = internal::AskedText(flags, configuration);
  line.options = *std::move(options);
  return line;
}

}  // namespace quire

#endif  // QUIRE_BASE_CONFIGURATION_H_
