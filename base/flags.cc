// SPDX-License-Identifier: Apache-2.0

#include "base/flags.h"

#include <algorithm>

#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/listen_address.h"
#include "base/nearest_flag.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/version.h"

namespace quire {
namespace {

constexpr size_t kHelpColumns = 100;

// Returns null when there is no such flag for users.
absl::CommandLineFlag* Find(const ProgramFlags& flags, absl::string_view typed) {
  const std::string name = absl::StrReplaceAll(typed, {{"-", "_"}});
  for (const FlagGroup& group : flags.groups) {
    for (const char* known : group.names) {
      if (name == known) return absl::FindCommandLineFlag(name);
    }
  }
  return nullptr;
}

bool IsSize(const absl::CommandLineFlag& flag) {
  return (flag.IsOfType<int32_t>() || flag.IsOfType<int64_t>()) && absl::EndsWith(flag.Name(), "_bytes");
}

absl::string_view Expected(const absl::CommandLineFlag& flag) {
  if (IsSize(flag)) return "a number of bytes such as 1048576, 512KiB or 1.5GiB";
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<double>()) return "a number";
  if (flag.IsOfType<absl::Duration>()) return "a duration such as 500ms, 30s, 10m or 1h30m";
  return "a whole number";
}

// Breaks `text` into indented lines of at most kHelpColumns characters.
std::string Wrap(absl::string_view text, absl::string_view indent) {
  std::string wrapped;
  std::string line;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!line.empty() && line.size() + 1 + word.size() > kHelpColumns) {
      absl::StrAppend(&wrapped, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? indent : " ", word);
  }
  return absl::StrCat(wrapped, line, "\n");
}

std::string Help(const ProgramFlags& flags) {
  std::string text =
      absl::StrCat(Wrap(absl::StrCat(flags.program, " ", flags.purpose), ""), "\nUsage: ", flags.program, " ",
                   flags.usage, "\n\nFlags are --name=value or --name value and shown here as ", "--name=default.\n");
  for (const FlagGroup& group : flags.groups) {
    absl::StrAppend(&text, "\n", group.title, "\n");
    for (const char* name : group.names) {
      const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
      const std::string value = flag->DefaultValue();
      absl::StrAppend(&text, "  ", FlagAsTyped(name), value.empty() ? "" : "=", value, "\n",
                      Wrap(flag->Help(), "      "));
    }
  }
  return absl::StrCat(text, "\n  --help, -h, --version\n      Print this, or the version, and leave.\n");
}

bool IsAsked(absl::Span<const char* const> arguments, absl::string_view flag) {
  return std::find(arguments.begin(), arguments.end(), flag) != arguments.end();
}

// Reads the flag at arguments[*i]. If its value is a separate argument, moves *i to it.
absl::StatusOr<FlagValue> ParseArgument(const ProgramFlags& flags, absl::Span<const char* const> arguments, size_t* i) {
  absl::string_view text = arguments[*i];
  if (!absl::ConsumePrefix(&text, "--")) {
    return absl::InvalidArgumentError(absl::StrCat("'", arguments[*i], "' is not a flag; see --help"));
  }
  const size_t equals = text.find('=');
  const absl::string_view typed = text.substr(0, equals);
  absl::CommandLineFlag* flag = Find(flags, typed);
  if (flag == nullptr) {
    std::vector<std::string> known;
    for (const std::string& name : FlagNames(flags)) known.push_back(FlagAsTyped(name));
    return absl::InvalidArgumentError(
        absl::StrCat("there is no flag --", typed, ";", DidYouMean(FlagAsTyped(typed), known)));
  }
  FlagValue value{flag, "true", FlagAsTyped(flag->Name()), "flag"};
  if (equals != absl::string_view::npos) {
    value.value = std::string(text.substr(equals + 1));
  } else if (!flag->IsOfType<bool>()) {
    if (*i + 1 == arguments.size()) return absl::InvalidArgumentError(absl::StrCat(value.name, " has no value"));
    value.value = arguments[++*i];
  }
  return value;
}

bool Names(absl::string_view message, absl::string_view flag) {
  const std::string typed = FlagAsTyped(flag);
  const auto goes_on = [](char c) { return c == '-' || absl::ascii_isalnum(c); };
  for (size_t at = message.find(typed); at != absl::string_view::npos; at = message.find(typed, at + 1)) {
    const size_t end = at + typed.size();
    if (end == message.size() || !goes_on(message[end])) return true;
  }
  return false;
}

absl::Status BadAddress(const absl::Flag<std::string>& flag, absl::string_view allowed) {
  const std::string address = absl::GetFlag(flag);
  const std::string is = absl::StrCat(FlagAsTyped(flag.Name()), " is '", address, "', ");
  if (HasBadPort(address))
    return absl::InvalidArgumentError(absl::StrCat(is, "its port must be 0 .. ", kMaxListenPort));
  return absl::InvalidArgumentError(absl::StrCat(is, "it must be ", allowed));
}

}  // namespace

absl::StatusOr<std::optional<std::string>> ReadFlags(const ProgramFlags& flags,
                                                     absl::Span<const char* const> arguments) {
  if (IsAsked(arguments, "--help") || IsAsked(arguments, "-h")) return Help(flags);
  if (IsAsked(arguments, "--version")) return absl::StrCat(flags.program, " ", kVersion, "\n");
  std::vector<FlagValue> values;
  QUIRE_RETURN_IF_ERROR(ParseArguments(flags, arguments, &values));
  for (const FlagValue& value : values) QUIRE_RETURN_IF_ERROR(SetFlag(value));
  return std::nullopt;
}

absl::Status ParseArguments(const ProgramFlags& flags, absl::Span<const char* const> arguments,
                            std::vector<FlagValue>* values) {
  absl::Status first = absl::OkStatus();
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::StatusOr<FlagValue> value = ParseArgument(flags, arguments, &i);
    if (value.ok()) {
      values->push_back(*std::move(value));
    } else {
      first.Update(value.status());
    }
  }
  return first;
}

absl::Status SetFlag(const FlagValue& value) {
  std::string error;
  if (value.flag->ParseFrom(value.value, &error)) return absl::OkStatus();
  if (IsSize(*value.flag) && absl::EndsWith(value.value, "iB")) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(value.value);
    if (bytes.ok() && value.flag->ParseFrom(absl::StrCat(*bytes), &error)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(value.name, " is '", value.value, "', it must be ", Expected(*value.flag)));
}

std::vector<std::string> FlagNames(const ProgramFlags& flags) {
  std::vector<std::string> names;
  for (const FlagGroup& group : flags.groups) names.insert(names.end(), group.names.begin(), group.names.end());
  return names;
}

std::string DidYouMean(absl::string_view typed, const std::vector<std::string>& known) {
  const std::string nearest = NearestFlag(typed, known);
  return nearest.empty() ? " see --help" : absl::StrCat(" did you mean ", nearest, "?");
}

std::string FlagAsTyped(absl::string_view name) {
  return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

absl::Status AboutFlag(absl::string_view flag, const absl::Status& error) {
  return {error.code(), error.ok() ? "" : absl::StrCat(flag, ": ", error.message())};
}

absl::Status WithSources(const absl::Status& error, const std::map<std::string, std::string>& sources) {
  std::vector<std::string> places;
  for (const auto& [flag, source] : sources) {
    if (source == "flag" || !Names(error.message(), flag)) continue;
    places.push_back(absl::StrCat(FlagAsTyped(flag), " is from ", source));
  }
  if (places.empty()) return error;
  return {error.code(), absl::StrCat(error.message(), " (", absl::StrJoin(places, "; "), ")")};
}

absl::Status BothErrors(const absl::Status& first, const absl::Status& second) {
  if (first.ok()) return second;
  if (second.ok()) return first;
  return {first.code(), absl::StrCat(first.message(), "; ", second.message())};
}

absl::Status CheckFlagRange(absl::string_view name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(FlagAsTyped(name), " is ", value, ", it must be ", min, " .. ", max));
}

absl::StatusOr<absl::Duration> DurationFlag(const absl::Flag<absl::Duration>& flag) {
  const absl::Duration value = absl::GetFlag(flag);
  if (value > absl::ZeroDuration() && value <= absl::Hours(24)) return value;
  return absl::InvalidArgumentError(absl::StrCat(FlagAsTyped(flag.Name()), " is ", absl::FormatDuration(value),
                                                 ", it must be more than 0 and at most 24h"));
}

absl::StatusOr<absl::Duration> DurationOrZeroFlag(const absl::Flag<absl::Duration>& flag) {
  const absl::Duration value = absl::GetFlag(flag);
  if (value >= absl::ZeroDuration() && value <= absl::Hours(24)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(FlagAsTyped(flag.Name()), " is ", absl::FormatDuration(value), ", it must be 0 .. 24h"));
}

absl::StatusOr<std::string> ListenFlag(const absl::Flag<std::string>& flag) {
  std::string address = absl::GetFlag(flag);
  if (!IsListenAddress(address)) return BadAddress(flag, "host:port or unix:path");
  return address;
}

absl::StatusOr<std::string> OptionalTcpAddressFlag(const absl::Flag<std::string>& flag) {
  std::string address = absl::GetFlag(flag);
  const bool is_tcp = IsListenAddress(address) && !absl::StartsWith(address, "unix:");
  if (!address.empty() && !is_tcp) return BadAddress(flag, "host:port, or empty for none");
  return address;
}

}  // namespace quire
