// SPDX-License-Identifier: Apache-2.0

#include "base/configuration.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/config_file.h"
#include "base/log.h"
#include "base/nearest_flag.h"
#include "base/version.h"

ABSL_FLAG(
    std::string, config, "",
    "YAML file with flags and their values, such as max_step_ms: 50. Environment variables override the file, and "
    "the command line overrides both. The name of a variable consists of the names of the program and the flag, "
    "as in QUIRE_MANAGER_MAX_STEP_MS, QUIRE_WORKER_MAX_SEQUENCES and QUIRE_OPENAI_LISTEN.");
ABSL_FLAG(bool, check_config, false, "Check the configuration, print whether it is valid, and exit.");
ABSL_FLAG(bool, print_effective_config, false,
          "Print the whole configuration in the format of --config, with a comment on the source of each value, and "
          "exit.");

namespace quire {
namespace {

constexpr absl::string_view kDefault = "default";

// Flags that ask for an action. They are allowed on the command line only.
bool IsCommand(absl::string_view name) {
  return name == "check_config" || name == "print_effective_config";
}

bool IsList(const ProgramFlags& flags, absl::string_view name) {
  return std::find(flags.lists.begin(), flags.lists.end(), name) != flags.lists.end();
}

std::vector<std::string> FileKeys(const ProgramFlags& flags) {
  std::vector<std::string> keys;
  for (const std::string& name : FlagNames(flags)) {
    if (name != "config" && !IsCommand(name)) keys.push_back(name);
  }
  return keys;
}

absl::Status ReadEnvironment(const ProgramFlags& flags, absl::Span<const char* const> environment,
                             std::vector<FlagValue>* values) {
  const std::string prefix = EnvironmentVariable(flags.program, "");
  std::vector<std::string> known;  // The prefix is left out.
  std::map<std::string, std::string> flag_of;
  for (const std::string& name : FlagNames(flags)) {
    if (IsCommand(name)) continue;
    const std::string variable = EnvironmentVariable(flags.program, name);
    known.push_back(variable.substr(prefix.size()));
    flag_of[variable] = name;
  }
  absl::Status first = absl::OkStatus();
  for (const absl::string_view variable : environment) {
    if (!absl::StartsWith(variable, prefix)) continue;
    const std::pair<std::string, std::string> sides = absl::StrSplit(variable, absl::MaxSplits('=', 1));
    const std::string& name = sides.first;
    if (const auto flag = flag_of.find(name); flag != flag_of.end()) {
      values->push_back(
          {absl::FindCommandLineFlag(flag->second), sides.second, name, absl::StrCat("environment ", name)});
    } else if (!IsServiceLink(name)) {
      const std::string nearest = NearestFlag(absl::string_view(name).substr(prefix.size()), known);
      const std::string hint = nearest.empty() ? "see --help" : absl::StrCat("did you mean ", prefix, nearest, "?");
      first.Update(InvalidArgument("the environment has ", name, ", which is no flag; ", hint));
    }
  }
  return first;
}

absl::StatusOr<FlagValue> FromEntry(const ProgramFlags& flags, const ConfigEntry& entry) {
  const std::vector<std::string> keys = FileKeys(flags);
  const std::string name = absl::StrReplaceAll(entry.key, {{"-", "_"}});
  if (std::find(keys.begin(), keys.end(), name) == keys.end()) {
    return InvalidArgument(entry.key_at, ": unknown key ", entry.key, ";", DidYouMean(name, keys));
  }
  if (entry.is_list && !IsList(flags, name)) {
    return InvalidArgument(entry.value_at, ": ", name, " is a list, it must be one value");
  }
  for (size_t i = 0; entry.is_list && i < entry.values.size(); ++i) {
    const std::string& item = entry.values[i];
    if (!item.empty() && !absl::StrContains(item, ",")) continue;
    return InvalidArgument(entry.value_at, ": item ", i + 1, " of ", name, " is '", item,
                           "', it must be text without a comma");
  }
  return FlagValue{absl::FindCommandLineFlag(name), absl::StrJoin(entry.values, ","),
                   absl::StrCat(entry.value_at, ": ", name), entry.value_at};
}

absl::Status ReadFile(const ProgramFlags& flags, const std::string& path, std::vector<FlagValue>* values) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries, ReadConfigFile(path));
  std::map<absl::string_view, std::string> given_at;
  absl::Status error = absl::OkStatus();
  for (const ConfigEntry& entry : entries) {
    const absl::StatusOr<FlagValue> value = FromEntry(flags, entry);
    if (!value.ok()) {
      error.Update(value.status());
      continue;
    }
    const auto [first, is_new] = given_at.emplace(value->flag->Name(), entry.key_at);
    if (!is_new) {
      error.Update(
          InvalidArgument(entry.key_at, ": ", value->flag->Name(), " is given twice, first at ", first->second));
    }
    values->push_back(*value);
  }
  return error;
}

// Returns the last of `values` for the flag, or nothing when there is none.
std::optional<std::string> LastValue(const std::vector<FlagValue>& values, absl::string_view name) {
  const auto last = std::find_if(values.rbegin(), values.rend(),
                                 [name](const FlagValue& value) { return value.flag->Name() == name; });
  return last == values.rend() ? std::nullopt : std::optional(last->value);
}

std::string EffectiveConfig(const ProgramFlags& flags, const internal::Configuration& configuration) {
  std::string text =
      absl::StrCat("# ", flags.program, " ", kVersion, ": the whole configuration, as --config reads it.\n");
  const std::vector<std::string> keys = FileKeys(flags);
  for (const FlagGroup& group : flags.groups) {
    std::string lines;
    for (const char* name : group.names) {
      if (std::find(keys.begin(), keys.end(), name) == keys.end()) continue;
      const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
      const auto source = configuration.sources.find(name);
      const std::string comment = source == configuration.sources.end() ? std::string(kDefault) : source->second;
      const bool is_text = flag->IsOfType<std::string>() || flag->IsOfType<absl::Duration>();
      const std::string value = flag->CurrentValue();
      absl::StrAppend(&lines, IsList(flags, name)
                                  ? ConfigLine(name, absl::StrSplit(value, ',', absl::SkipEmpty()), comment)
                                  : ConfigLine(name, value, is_text, comment));
    }
    if (lines.empty()) continue;
    absl::StrAppend(&text, "\n# ", absl::StrReplaceAll(group.title, {{"\n", "\n# "}}), "\n", lines);
  }
  return text;
}

}  // namespace

FlagGroup ConfigurationFlagGroup() {
  return {"Configuration:", {"config", "check_config", "print_effective_config"}};
}

std::string EnvironmentVariable(absl::string_view program, absl::string_view flag) {
  return absl::AsciiStrToUpper(absl::StrReplaceAll(absl::StrCat(program, "_", flag), {{"-", "_"}}));
}

bool IsServiceLink(absl::string_view variable) {
  for (const absl::string_view end : {"_PORT", "_SERVICE_HOST"}) {
    if (absl::EndsWith(variable, end)) return true;
  }
  if (absl::StrContains(variable, "_SERVICE_PORT_")) return true;
  // The name ends with _PORT_<number>_<protocol>, which _PROTO, _PORT or _ADDR may follow.
  const size_t port = variable.rfind("_PORT_");
  if (port == absl::string_view::npos) return false;
  absl::string_view rest = variable.substr(port + 6);
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  rest.remove_prefix(digits);
  if (digits == 0) return false;
  for (const absl::string_view protocol : {"_TCP", "_UDP", "_SCTP"}) {
    if (!absl::ConsumePrefix(&rest, protocol)) continue;
    return rest.empty() || rest == "_PROTO" || rest == "_ADDR";
  }
  return false;
}

std::vector<const char*> ProcessEnvironment() {
  std::vector<const char*> environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    environment.push_back(*variable);
  }
  return environment;
}

namespace internal {

absl::StatusOr<Configuration> SetFlagsFromAll(const ProgramFlags& flags, absl::Span<const char* const> arguments,
                                              absl::Span<const char* const> environment) {
  for (const char* asked : {"--help", "-h", "--version"}) {
    if (std::find(arguments.begin(), arguments.end(), absl::string_view(asked)) == arguments.end()) continue;
    QUIRE_ASSIGN_OR_RETURN(std::optional<std::string> text, ReadFlags(flags, {asked}));
    return Configuration{.text = std::move(text), .sources = {}};
  }
  // All three are read before the first error is reported, because they determine the format of the report.
  std::vector<FlagValue> typed;
  absl::Status error = ParseArguments(flags, arguments, &typed);
  std::vector<FlagValue> surrounding;
  error.Update(ReadEnvironment(flags, environment, &surrounding));
  std::optional<std::string> file = LastValue(typed, "config");
  if (!file.has_value()) file = LastValue(surrounding, "config");
  const std::string path = file.value_or("");
  std::vector<FlagValue> values;
  if (!path.empty()) error.Update(ReadFile(flags, path, &values));
  values.insert(values.end(), surrounding.begin(), surrounding.end());
  values.insert(values.end(), typed.begin(), typed.end());
  if (LastValue(values, "log_format") == "json") SetLogFormat(LogFormat::kJson);
  QUIRE_RETURN_IF_ERROR(error);
  Configuration configuration;
  for (const FlagValue& value : values) {
    QUIRE_RETURN_IF_ERROR(SetFlag(value));
    configuration.sources[std::string(value.flag->Name())] = value.source;
  }
  return configuration;
}

std::optional<std::string> AskedText(const ProgramFlags& flags, const Configuration& configuration) {
  if (absl::GetFlag(FLAGS_print_effective_config)) return EffectiveConfig(flags, configuration);
  if (absl::GetFlag(FLAGS_check_config)) return absl::StrCat(flags.program, ": the configuration is valid\n");
  return std::nullopt;
}

}  // namespace internal
}  // namespace quire
