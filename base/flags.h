#ifndef QUIRE_BASE_FLAGS_H_
#define QUIRE_BASE_FLAGS_H_

#include <cstddef>
#include <cstdint>
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

// A thin reader over absl::flags, whose own exits with other codes and with several lines. Flags are --name=value or
// --name value, dashes and underscores in names alike; boolean ones stand alone or take =true or =false. Every error is
// INVALID_ARGUMENT in one line that names flag, value and limit.

// Flags that users see together, with underscores.
struct FlagGroup {
  const char* title;
  std::vector<const char*> names;
};

// A program as its --help shows it. Libraries may bring more flags, which are not the users'.
struct ProgramFlags {
  const char* program;
  const char* purpose;  // A paragraph.
  const char* usage;    // What follows the program's name in its plainest use.
  std::vector<FlagGroup> groups;
  std::vector<const char*> lists = {};  // Those of these flags whose values are lists, separated by commas.
};

// A value for a flag.
struct FlagValue {
  absl::CommandLineFlag* flag;
  std::string value;
  std::string name;    // As errors call the flag: "--max-step-ms".
  std::string source;  // For people: "flag".
};

// What a command line asks for.
template <typename Options>
struct CommandLine {
  // --help or --version, which come before everything else, or, once the options are known to be valid, --check-config
  // or --print-effective-config: print this and leave.
  std::optional<std::string> text;
  Options options;  // Otherwise.
};

// Sets the flags that `arguments` (without the program's name) give values to, or returns the text that --help or
// --version asks for. Flags belong to the process: call it once.
absl::StatusOr<std::optional<std::string>> ReadFlags(const ProgramFlags& flags,
                                                     absl::Span<const char* const> arguments);

// Appends the values that `arguments` give. After an error it goes on with the next argument, and returns the first.
absl::Status ParseArguments(const ProgramFlags& flags, absl::Span<const char* const> arguments,
                            std::vector<FlagValue>* values);
absl::Status SetFlag(const FlagValue& value);

// All names of `flags`, in their order.
std::vector<std::string> FlagNames(const ProgramFlags& flags);
// " did you mean NAME?", or " see --help" when none of `known` is near `typed`.
std::string DidYouMean(absl::string_view typed, const std::vector<std::string>& known);

// "kv_bytes" to "--kv-bytes".
std::string FlagAsTyped(absl::string_view name);

// "--threads is -1, it must be 0 .. 1024".
absl::Status CheckFlagRange(absl::string_view name, int64_t value, int64_t min, int64_t max);

// The choice that the flag's value names: "--policy is 'best', it must be one of fcfs, priority".
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

// Above 0 and at most 24h.
absl::StatusOr<absl::Duration> DurationFlag(const absl::Flag<absl::Duration>& flag);

// host:port or unix:path.
absl::StatusOr<std::string> ListenFlag(const absl::Flag<std::string>& flag);
// host:port, or empty for none.
absl::StatusOr<std::string> OptionalPortFlag(const absl::Flag<std::string>& flag);

}  // namespace quire

#endif  // QUIRE_BASE_FLAGS_H_
