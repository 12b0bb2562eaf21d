// SPDX-License-Identifier: Apache-2.0

#include "base/configuration.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

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
#include "base/status.h"
#include "base/version.h"

namespace quire {
namespace {

// Flags that ask for an action. They are allowed on the command line only.
bool IsCommand(absl::string_view name) {
  return name == "check_config" || name == "print_effective_config";
}

std::vector<std::string> FileKeys(const Settings& settings) {
  std::vector<std::string> keys = settings.Names();
  std::erase_if(keys, [](const std::string& name) { return name == "config" || IsCommand(name); });
  return keys;
}

absl::Status ReadEnvironment(const Settings& settings, absl::Span<const char* const> environment,
                             std::vector<FlagValue>* values) {
  const std::string prefix = EnvironmentVariable(settings.program, "");
  std::vector<std::string> known;  // The prefix is left out.
  std::map<std::string, std::string> flag_of;
  for (const std::string& name : settings.Names()) {
    if (IsCommand(name)) continue;
    const std::string variable = EnvironmentVariable(settings.program, name);
    known.push_back(variable.substr(prefix.size()));
    flag_of[variable] = name;
  }
  absl::Status first = absl::OkStatus();
  for (const absl::string_view variable : environment) {
    if (!absl::StartsWith(variable, prefix)) continue;
    const std::pair<std::string, std::string> sides = absl::StrSplit(variable, absl::MaxSplits('=', 1));
    const std::string& name = sides.first;
    if (const auto flag = flag_of.find(name); flag != flag_of.end()) {
      values->push_back({settings.Find(flag->second), sides.second, name, absl::StrCat("environment ", name)});
    } else if (!IsServiceLink(name)) {
      const std::string nearest = NearestFlag(absl::string_view(name).substr(prefix.size()), known);
      const std::string hint = nearest.empty() ? "see --help" : absl::StrCat("did you mean ", prefix, nearest, "?");
      first.Update(InvalidArgument("the environment has ", name, ", which is no flag; ", hint));
    }
  }
  return first;
}

absl::StatusOr<FlagValue> FromEntry(const Settings& settings, const ConfigEntry& entry) {
  const std::vector<std::string> keys = FileKeys(settings);
  const std::string name = absl::StrReplaceAll(entry.key, {{"-", "_"}});
  if (std::find(keys.begin(), keys.end(), name) == keys.end()) {
    return InvalidArgument(entry.key_at, ": unknown key ", entry.key, ";", DidYouMean(name, keys));
  }
  const Setting* const setting = settings.Find(name);
  if (entry.is_list && setting->kind != Setting::Kind::kList) {
    return InvalidArgument(entry.value_at, ": ", name, " is a list, it must be one value");
  }
  for (size_t i = 0; entry.is_list && i < entry.values.size(); ++i) {
    const std::string& item = entry.values[i];
    if (!item.empty() && !absl::StrContains(item, ",")) continue;
    return InvalidArgument(entry.value_at, ": item ", i + 1, " of ", name, " is '", item,
                           "', it must be text without a comma");
  }
  return FlagValue{setting, absl::StrJoin(entry.values, ","), absl::StrCat(entry.value_at, ": ", name), entry.value_at};
}

absl::Status ReadFile(const Settings& settings, const std::string& path, std::vector<FlagValue>* values) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries, ReadConfigFile(path));
  std::map<absl::string_view, std::string> given_at;
  absl::Status error = absl::OkStatus();
  for (const ConfigEntry& entry : entries) {
    const absl::StatusOr<FlagValue> value = FromEntry(settings, entry);
    if (!value.ok()) {
      error.Update(value.status());
      continue;
    }
    const auto [first, is_new] = given_at.emplace(value->setting->name, entry.key_at);
    if (!is_new) {
      error.Update(
          InvalidArgument(entry.key_at, ": ", value->setting->name, " is given twice, first at ", first->second));
    }
    values->push_back(*value);
  }
  return error;
}

// Returns the last of `values` for the flag, or nothing when there is none.
std::optional<std::string> LastValue(const std::vector<FlagValue>& values, absl::string_view name) {
  const auto last = std::find_if(values.rbegin(), values.rend(),
                                 [name](const FlagValue& value) { return value.setting->name == name; });
  return last == values.rend() ? std::nullopt : std::optional(last->value);
}

// The sources of values that are not defaults, by the names of their settings.
using Sources = std::map<std::string, std::string>;

std::string EffectiveConfig(const Settings& settings, const Sources& sources) {
  std::string text =
      absl::StrCat("# ", settings.program, " ", kVersion, ": the whole configuration, as --config reads it.\n");
  for (const SettingGroup& group : settings.groups) {
    std::string lines;
    for (const Setting& setting : group.settings) {
      if (setting.name == "config" || IsCommand(setting.name)) continue;
      const auto source = sources.find(setting.name);
      const std::string comment = source == sources.end() ? "default" : source->second;
      const bool is_text = setting.kind == Setting::Kind::kText || setting.kind == Setting::Kind::kTime;
      const std::string value = setting.text();
      absl::StrAppend(&lines, setting.kind == Setting::Kind::kList
                                  ? ConfigLine(setting.name, absl::StrSplit(value, ',', absl::SkipEmpty()), comment)
                                  : ConfigLine(setting.name, value, is_text, comment));
    }
    if (lines.empty()) continue;
    absl::StrAppend(&text, "\n# ", absl::StrReplaceAll(group.title, {{"\n", "\n# "}}), "\n", lines);
  }
  return text;
}

// Returns the text to print for --check-config or --print-effective-config, if one of them is set.
std::optional<std::string> AskedText(const Settings& settings, const Sources& sources) {
  const auto is_set = [&](const char* command) { return settings.Find(command)->text() == "true"; };
  if (is_set("print_effective_config")) return EffectiveConfig(settings, sources);
  if (is_set("check_config")) return absl::StrCat(settings.program, ": the configuration is valid\n");
  return std::nullopt;
}

// Sets the values from the command line, the environment and the file, and returns their sources.
absl::StatusOr<Sources> SetFromAll(const Settings& settings, absl::Span<const char* const> arguments,
                                   absl::Span<const char* const> environment) {
  // All three are read before the first error is reported, because they determine the format of the report.
  std::vector<FlagValue> typed;
  absl::Status error = ParseArguments(settings, arguments, &typed);
  std::vector<FlagValue> surrounding;
  error.Update(ReadEnvironment(settings, environment, &surrounding));
  std::optional<std::string> file = LastValue(typed, "config");
  if (!file.has_value()) file = LastValue(surrounding, "config");
  const std::string path = file.value_or("");
  std::vector<FlagValue> values;
  if (!path.empty()) error.Update(ReadFile(settings, path, &values));
  values.insert(values.end(), surrounding.begin(), surrounding.end());
  values.insert(values.end(), typed.begin(), typed.end());
  if (LastValue(values, "log_format") == "json") SetLogFormat(LogFormat::kJson);
  QUIRE_RETURN_IF_ERROR(error);
  Sources sources;
  for (const FlagValue& value : values) {
    QUIRE_RETURN_IF_ERROR(SetFlag(value));
    sources[value.setting->name] = value.source;
  }
  return sources;
}

}  // namespace

void AddConfigurationFlags(Settings* table) {
  struct Values {
    std::string config;
    bool check_config = false;
    bool print_effective_config = false;
  };
  const auto values = std::make_shared<Values>();
  table->kept.push_back(values);
  table->Group("Configuration:");
  table->Add(
      "config", &values->config,
      "YAML file with flags and their values, such as max_step_ms: 50. Environment variables override the file, and "
      "the command line overrides both. The name of a variable consists of the names of the program and the flag, "
      "as in QUIRE_MANAGER_MAX_STEP_MS, QUIRE_WORKER_MAX_SEQUENCES and QUIRE_OPENAI_LISTEN.");
  table->Add("check_config", &values->check_config, "Check the configuration, print whether it is valid, and exit.");
  table->Add("print_effective_config", &values->print_effective_config,
             "Print the whole configuration in the format of --config, with a comment on the source of each value, "
             "and exit.");
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

absl::StatusOr<std::optional<std::string>> ReadConfiguration(const Settings& settings,
                                                             absl::Span<const char* const> arguments,
                                                             absl::Span<const char* const> environment,
                                                             absl::FunctionRef<absl::Status()> finish) {
  if (std::optional<std::string> text = HelpOrVersion(settings, arguments)) return text;
  QUIRE_ASSIGN_OR_RETURN(const Sources sources, SetFromAll(settings, arguments, environment));
  std::optional<std::string> text = AskedText(settings, sources);  // Before the values are completed.
  absl::Status status = settings.Check();
  if (status.ok()) status = finish();
  if (!status.ok()) return WithSources(status, sources);
  return text;
}

}  // namespace quire
