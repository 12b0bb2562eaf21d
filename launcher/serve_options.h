// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_LAUNCHER_SERVE_OPTIONS_H_
#define QUIRE_LAUNCHER_SERVE_OPTIONS_H_

#include <array>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/command_line.h"
#include "base/settings.h"

namespace quire {

// The programs that `quire serve` starts.
enum PartId { kWorker, kManager, kGateway };
inline constexpr int kNumParts = 3;

struct PartName {
  const char* name;  // Its section in the file of --config, and the prefix of its flags.
  const char* program;
};
inline constexpr std::array<PartName, kNumParts> kPartNames = {
    {{"worker", "quire-worker"}, {"manager", "quire-manager"}, {"gateway", "quire-openai"}}};

// A flag for one of the programs.
struct PartFlag {
  std::string name;    // Such as "kv_bytes".
  std::string text;    // The argument of the program, such as "--kv-bytes=4GiB".
  std::string source;  // Where it comes from, as "quire.yaml:3"; "flag" for the command line.
  std::string typed;   // How a user of `quire serve` writes it, such as "--worker.kv-bytes".
};

// A flag that a program has.
struct KnownFlag {
  std::string name;  // Such as "kv_bytes".
  bool is_switch;    // Whether the value is true or false; "--name" alone is true.
};

struct ServeOptions {
  std::string model;  // As it was typed.
  // In the order in which they count: the last one of a name wins.
  std::array<std::vector<PartFlag>, kNumParts> flags;
};

// The values of the flags of `quire serve` itself.
struct ServeFlags {
  int port = 8000;
  std::string host = "127.0.0.1";
  std::string config;
  std::string passed_on;  // Nobody reads it, because the programs get the values of the other flags.
};

// The table of these flags, which are read into `values`.
Settings ServeSettings(ServeFlags* values);

// Returns all flags of a program.
using ListFlags = absl::FunctionRef<std::vector<KnownFlag>(PartId)>;

// Reads the arguments after "quire serve" and the file of --config. The values of the programs' flags are checked by
// the programs. `list_flags` is called for a flag of a program without "=", and for the error about an unknown flag.
absl::StatusOr<CommandLine<ServeOptions>> ParseServeCommandLine(absl::Span<const char* const> arguments,
                                                                ListFlags list_flags);

// Returns whether one of the flags has this name.
bool HasFlag(const std::vector<PartFlag>& flags, absl::string_view name);

// Returns an error of a program with its flags as a user of `quire serve` writes them: "--threads" of the worker
// becomes
// "--worker.threads", and "--listen" of the gateway "--port". Only `known` flags of the program are changed, and those
// `given` to it, whose last `typed` form counts.
std::string WithServeFlags(PartId part, absl::string_view error, const std::vector<KnownFlag>& known,
                           const std::vector<PartFlag>& given);

}  // namespace quire

#endif  // QUIRE_LAUNCHER_SERVE_OPTIONS_H_
