// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_FLAGS_H_
#define QUIRE_BASE_FLAGS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/command_line.h"

namespace quire {

// Reads command lines into absl::flags, for benchmarks and tools. We do not use absl::ParseCommandLine, because on an
// error it ends the process with several lines and an exit code of its own.

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
};

// Sets the flags in `arguments`, which do not include the program's name. Returns the text to print for --help or
// --version. Call it once, because flags belong to the process.
absl::StatusOr<std::optional<std::string>> ReadFlags(const ProgramFlags& flags,
                                                     absl::Span<const char* const> arguments);

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

}  // namespace quire

#endif  // QUIRE_BASE_FLAGS_H_
