// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_COMMAND_LINE_H_
#define QUIRE_BASE_COMMAND_LINE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/settings.h"

namespace quire {

// Reads command lines into settings. A flag is --name=value or --name value; names may have dashes or underscores. A
// boolean flag is --name, --name=true or --name=false. Every error is INVALID_ARGUMENT with one line. It names the
// argument or the flag and, when the value is wrong, the value and what the flag accepts.

struct FlagValue {
  const Setting* setting;
  std::string value;
  std::string name;    // The flag's name in error messages, such as "--max-step-ms".
  std::string source;  // Where the value comes from, in words, for example "flag".
};

// The result of reading a command line.
template <typename Options>
struct CommandLine {
  // The text to print before the program ends, if the command line has --help, -h or --version, or if it is valid and
  // has --check-config or --print-effective-config.
  std::optional<std::string> text;
  Options options = {};  // The options, if there is no text.
};

// Returns the text to print for --help or --version, if `arguments` have one of them.
std::optional<std::string> HelpOrVersion(const Settings& settings, absl::Span<const char* const> arguments);

// Appends the flags in `arguments`, which do not include the program's name, to `values`. After an error it continues
// with the next argument, and it returns the first error.
absl::Status ParseArguments(const Settings& settings, absl::Span<const char* const> arguments,
                            std::vector<FlagValue>* values);
absl::Status SetFlag(const FlagValue& value);

// Returns " did you mean NAME?", or " see --help" when NearestFlag knows none.
std::string DidYouMean(absl::string_view typed, const std::vector<std::string>& known);

// Puts the flag that is to blame before the message of an error, as in "--listen: cannot listen on 10.0.0.1:1".
absl::Status AboutFlag(absl::string_view flag, const absl::Status& error);

// Adds to `error` where the values of the flags that it names come from, as in "--watermark is 2, it must be in [0, 1)
// (--watermark is from quire.yaml:3)". `sources` has the places by the names of flags, such as "watermark"; "flag" is
// the command line.
absl::Status WithSources(const absl::Status& error, const std::map<std::string, std::string>& sources);

// Returns both errors as one, with the code of the first, or the only one, or OK. So a user who must change two flags
// learns it at once.
absl::Status BothErrors(const absl::Status& first, const absl::Status& second);

}  // namespace quire

#endif  // QUIRE_BASE_COMMAND_LINE_H_
