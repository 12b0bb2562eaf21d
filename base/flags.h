// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_FLAGS_H_
#define QUIRE_BASE_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace quire {

// Reads command lines into absl::flags. We do not use absl::ParseCommandLine, because on an error it ends the process
// with several lines and an exit code of its own. A flag is --name=value or --name value; names may have dashes or
// underscores. A boolean flag is --name, --name=true or --name=false. A whole number whose name ends with _bytes may
// have a unit (ParseBytes). Every error is INVALID_ARGUMENT with one line. It names the argument or the flag and, when
// the value is wrong, the value and what the flag accepts.

// Flags that --help shows together. The names have underscores.
struct FlagGroup {
  const char* title;
  std::vector<const char*> names;
};

// Everything that --help shows about a program. A flag in no group (for example a flag of a library) is not accepted.
struct ProgramFlags {
  const char* program;
  const char* purpose;  // A paragraph.
  const char* usage;    // The arguments of its simplest use.
  std::vector<FlagGroup> groups;
  std::vector<const char*> lists = {};  // The flags whose values are lists, separated by commas.
};

struct FlagValue {
  absl::CommandLineFlag* flag;
  std::string value;
  std::string name;    // The flag's name in error messages, such as "--max-step-ms".
  std::string source;  // Where the value comes from, in words, for example "flag".
};

// The result of reading a command line.
template <typename Options>
struct CommandLine {
  // The text to print before the program ends, if the command line has --help, -h or --version, or if it is valid and
  // has
  // --check-config or --print-effective-config.
  std::optional<std::string> text;
  Options options = {};  // The options, if there is no text.
};

// Sets the flags in `arguments`, which do not include the program's name. Returns the text to print for --help or
// --version. Call it once, because flags belong to the process.
absl::StatusOr<std::optional<std::string>> ReadFlags(const ProgramFlags& flags,
                                                     absl::Span<const char* const> arguments);

// Appends the flags in `arguments` to `values`. After an error it continues with the next argument, and it returns the
// first error.
absl::Status ParseArguments(const ProgramFlags& flags, absl::Span<const char* const> arguments,
                            std::vector<FlagValue>* values);
absl::Status SetFlag(const FlagValue& value);

// Returns all names of `flags` in their order.
std::vector<std::string> FlagNames(const ProgramFlags& flags);
// Returns " did you mean NAME?", or " see --help" when NearestFlag knows none.
std::string DidYouMean(absl::string_view typed, const std::vector<std::string>& known);

// Turns "kv_bytes" into "--kv-bytes".
std::string FlagAsTyped(absl::string_view name);

// Puts the flag that is to blame before the message of an error, as in "--listen: cannot listen on 10.0.0.1:1".
absl::Status AboutFlag(absl::string_view flag, const absl::Status& error);

// Adds to `error` where the values of the flags that it names come from, as in "--watermark is 2, it must be in [0, 1)
// (--watermark is from quire.yaml:3)". `sources` has the places by the names of flags, such as "watermark"; "flag" is
// the command line.
absl::Status WithSources(const absl::Status& error, const std::map<std::string, std::string>& sources);

// Returns both errors as one, with the code of the first, or the only one, or OK. So a user who must change two flags
// learns it at once.
absl::Status BothErrors(const absl::Status& first, const absl::Status& second);

// Returns an error such as "--threads is -1, it must be 0 .. 1024" when the value is outside [min, max].
absl::Status CheckFlagRange(absl::string_view name, int64_t value, int64_t min, int64_t max);

// Returns the choice that the flag's value names, or an error such as "--policy is 'best', it must be one of fcfs,
// priority".
template <typename T>
absl::StatusOr<T> FlagChoice(const absl::Flag<std::string>& flag,
                             const std::vector<std::pair<const char*, T>>& choices) {
  const std::string value = absl::GetFlag(flag);
  std::string names;
  for (const auto& [name, choice] : choices) {
    if (value == name) return choice;
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(FlagAsTyped(flag.Name()), " is '", value, "', it must be one of ", names));
}

// Returns the flag's value, which must be above 0 and at most 24h.
absl::StatusOr<absl::Duration> DurationFlag(const absl::Flag<absl::Duration>& flag);
// The same for a flag that may be 0.
absl::StatusOr<absl::Duration> DurationOrZeroFlag(const absl::Flag<absl::Duration>& flag);

// Returns the flag's value, which must be host:port or unix:path.
absl::StatusOr<std::string> ListenFlag(const absl::Flag<std::string>& flag);
// Returns the flag's value, which must be host:port or empty.
absl::StatusOr<std::string> OptionalTcpAddressFlag(const absl::Flag<std::string>& flag);

}  // namespace quire

#endif  // QUIRE_BASE_FLAGS_H_
