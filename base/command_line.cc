// SPDX-License-Identifier: Apache-2.0

#include "base/command_line.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/nearest_flag.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/version.h"

namespace quire {
namespace {

constexpr size_t kHelpColumns = 100;

absl::string_view Expected(Setting::Kind kind) {
  switch (kind) {
    case Setting::Kind::kSwitch:
      return "true or false";
    case Setting::Kind::kSize:
      return "a number of bytes such as 1048576, 512KiB or 1.5GiB";
    case Setting::Kind::kReal:
      return "a number";
    case Setting::Kind::kTime:
      return "a duration such as 500ms, 30s, 10m or 1h30m";
    default:  // Any text is a text or a list.
      return "a whole number";
  }
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

std::string Help(const Settings& settings) {
  std::string text =
      absl::StrCat(Wrap(absl::StrCat(settings.program, " ", settings.purpose), ""), "\nUsage: ", settings.program, " ",
                   settings.usage, "\n\nFlags are --name=value or --name value and shown here as --name=default.\n");
  for (const SettingGroup& group : settings.groups) {
    absl::StrAppend(&text, "\n", group.title, "\n");
    for (const Setting& setting : group.settings) {
      const std::string& value = setting.default_text;
      absl::StrAppend(&text, "  ", FlagAsTyped(setting.name), value.empty() ? "" : "=", value, "\n",
                      Wrap(setting.help, "      "));
    }
  }
  return absl::StrCat(text, "\n  --help, -h, --version\n      Print this, or the version, and leave.\n");
}

bool IsAsked(absl::Span<const char* const> arguments, absl::string_view flag) {
  return std::find(arguments.begin(), arguments.end(), flag) != arguments.end();
}

// Reads the flag at arguments[*i]. If its value is a separate argument, moves *i to it.
absl::StatusOr<FlagValue> ParseArgument(const Settings& settings, absl::Span<const char* const> arguments, size_t* i) {
  absl::string_view text = arguments[*i];
  if (!absl::ConsumePrefix(&text, "--")) return InvalidArgument("'", arguments[*i], "' is not a flag; see --help");
  const size_t equals = text.find('=');
  const absl::string_view typed = text.substr(0, equals);
  const Setting* const setting = settings.Find(typed);
  if (setting == nullptr) {
    std::vector<std::string> known = settings.Names();
    for (std::string& name : known) name = FlagAsTyped(name);
    return InvalidArgument("there is no flag --", typed, ";", DidYouMean(FlagAsTyped(typed), known));
  }
  FlagValue value{setting, "true", FlagAsTyped(setting->name), "flag"};
  if (equals != absl::string_view::npos) {
    value.value = std::string(text.substr(equals + 1));
  } else if (setting->kind != Setting::Kind::kSwitch) {
    if (*i + 1 == arguments.size()) return InvalidArgument(value.name, " has no value");
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

}  // namespace

std::optional<std::string> HelpOrVersion(const Settings& settings, absl::Span<const char* const> arguments) {
  if (IsAsked(arguments, "--help") || IsAsked(arguments, "-h")) return Help(settings);
  if (IsAsked(arguments, "--version")) return absl::StrCat(settings.program, " ", kVersion, "\n");
  return std::nullopt;
}

absl::Status ParseArguments(const Settings& settings, absl::Span<const char* const> arguments,
                            std::vector<FlagValue>* values) {
  absl::Status first = absl::OkStatus();
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::StatusOr<FlagValue> value = ParseArgument(settings, arguments, &i);
    if (value.ok()) {
      values->push_back(*std::move(value));
    } else {
      first.Update(value.status());
    }
  }
  return first;
}

absl::Status SetFlag(const FlagValue& value) {
  const Setting& setting = *value.setting;
  if (setting.parse(value.value)) return absl::OkStatus();
  if (setting.kind == Setting::Kind::kSize && absl::EndsWith(value.value, "iB")) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(value.value);
    if (bytes.ok() && setting.parse(absl::StrCat(*bytes))) return absl::OkStatus();
  }
  return InvalidArgument(value.name, " is '", value.value, "', it must be ", Expected(setting.kind));
}

std::string DidYouMean(absl::string_view typed, const std::vector<std::string>& known) {
  const std::string nearest = NearestFlag(typed, known);
  return nearest.empty() ? " see --help" : absl::StrCat(" did you mean ", nearest, "?");
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

}  // namespace quire
