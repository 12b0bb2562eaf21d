// SPDX-License-Identifier: Apache-2.0

#include "base/settings.h"

#include <algorithm>

#include "absl/flags/marshalling.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/listen_address.h"
#include "base/number_text.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr absl::Duration kMaxTime = absl::Hours(24);

// T is one of the types that absl::ParseFlag knows.
template <typename T>
Setting SettingOf(const char* name, Setting::Kind kind, T* value, const char* help) {
  const auto parse = [value](const std::string& text) {
    T parsed;
    std::string error;
    if (!absl::ParseFlag<T>(text, &parsed, &error)) return false;
    *value = std::move(parsed);
    return true;
  };
  return {name, kind, help, absl::UnparseFlag<T>(*value), parse, [value] { return absl::UnparseFlag<T>(*value); }};
}

template <typename T>
Setting WholeSetting(const char* name, T* value, WholeRange range, const char* help) {
  const bool is_size = absl::EndsWith(name, "_bytes");
  Setting setting = SettingOf(name, is_size ? Setting::Kind::kSize : Setting::Kind::kNumber, value, help);
  setting.check = [=] { return CheckFlagRange(name, *value, range.min, range.max); };
  return setting;
}

absl::Status CheckReal(absl::string_view name, double value, const RealRange& range) {
  const bool is_above = range.has_min ? value >= range.min : value > range.min;
  const bool is_below = range.has_max ? value <= range.max : value < range.max;
  if (is_above && is_below) return absl::OkStatus();  // NaN is neither.
  return InvalidArgument(FlagAsTyped(name), " is ", NumberText(value), ", it must be ", range.text);
}

absl::Status CheckTime(absl::string_view name, absl::Duration value, TimeRange range) {
  const bool has_zero = range == TimeRange::kFromZero;
  const bool is_above = has_zero ? value >= absl::ZeroDuration() : value > absl::ZeroDuration();
  if (range == TimeRange::kAny || (is_above && value <= kMaxTime)) return absl::OkStatus();
  return InvalidArgument(FlagAsTyped(name), " is ", absl::FormatDuration(value), ", it must be ",
                         has_zero ? "0 .. 24h" : "more than 0 and at most 24h");
}

absl::Status BadAddress(absl::string_view name, const std::string& value, absl::string_view allowed) {
  const std::string is = absl::StrCat(FlagAsTyped(name), " is '", value, "', ");
  if (HasBadPort(value)) return InvalidArgument(is, "its port must be 0 .. ", kMaxListenPort);
  return InvalidArgument(is, "it must be ", allowed);
}

}  // namespace

void Settings::Group(std::string title) {
  groups.push_back({std::move(title), {}});
}

void Settings::Add(const char* name, bool* value, const char* help) {
  Add(SettingOf(name, Setting::Kind::kSwitch, value, help));
}

void Settings::Add(const char* name, int* value, WholeRange range, const char* help) {
  Add(WholeSetting(name, value, range, help));
}

void Settings::Add(const char* name, int64_t* value, WholeRange range, const char* help) {
  Add(WholeSetting(name, value, range, help));
}

void Settings::Add(const char* name, size_t* value, WholeRange range, const char* help) {
  // As a number with a sign, so that -1 is out of range instead of no number.
  static_assert(sizeof(size_t) == sizeof(int64_t));
  Add(name, reinterpret_cast<int64_t*>(value), range, help);
}

void Settings::Add(const char* name, double* value, RealRange range, const char* help) {
  Add(SettingOf(name, Setting::Kind::kReal, value, help)).check = [=] { return CheckReal(name, *value, range); };
}

void Settings::Add(const char* name, absl::Duration* value, TimeRange range, const char* help) {
  Add(SettingOf(name, Setting::Kind::kTime, value, help)).check = [=] { return CheckTime(name, *value, range); };
}

void Settings::Add(const char* name, std::string* value, const char* help, TextRule rule) {
  Setting& setting = Add(SettingOf(name, Setting::Kind::kText, value, help));
  if (rule != nullptr) setting.check = [=] { return rule(name, *value); };
}

void Settings::AddList(const char* name, std::vector<std::string>* values, const char* help, ListRule rule,
                       bool keeps_empty) {
  const auto parse = [=](const std::string& text) {
    *values = absl::StrSplit(text, ',');
    if (!keeps_empty) std::erase(*values, "");
    return true;
  };
  const auto text = [values] { return absl::StrJoin(*values, ","); };
  Setting& setting = Add({name, Setting::Kind::kList, help, text(), parse, text});
  if (rule != nullptr) setting.check = [=] { return rule(*values); };
}

void Settings::AddWord(const char* name, const char* word, std::vector<const char*> words,
                       std::function<void(size_t)> set, const char* help) {
  const auto given = std::make_shared<std::string>(word);
  Setting& setting = Add(SettingOf(name, Setting::Kind::kText, given.get(), help));
  setting.check = [name, given, words = std::move(words), set = std::move(set)] {
    const auto found = std::find(words.begin(), words.end(), *given);
    if (found == words.end()) {
      return InvalidArgument(FlagAsTyped(name), " is '", *given, "', it must be one of ", absl::StrJoin(words, ", "));
    }
    set(found - words.begin());
    return absl::OkStatus();
  };
}

Setting& Settings::Add(Setting setting) {
  return groups.back().settings.emplace_back(std::move(setting));
}

const Setting* Settings::Find(absl::string_view name) const {
  const std::string wanted = absl::StrReplaceAll(name, {{"-", "_"}});
  for (const SettingGroup& group : groups) {
    for (const Setting& setting : group.settings) {
      if (setting.name == wanted) return &setting;
    }
  }
  return nullptr;
}

std::vector<std::string> Settings::Names() const {
  std::vector<std::string> names;
  for (const SettingGroup& group : groups) {
    for (const Setting& setting : group.settings) names.push_back(setting.name);
  }
  return names;
}

absl::Status Settings::Check() const {
  for (const SettingGroup& group : groups) {
    for (const Setting& setting : group.settings) {
      if (setting.check) QUIRE_RETURN_IF_ERROR(setting.check());
    }
  }
  return absl::OkStatus();
}

absl::Status CheckListenAddress(absl::string_view name, const std::string& value) {
  return IsListenAddress(value) ? absl::OkStatus() : BadAddress(name, value, "host:port or unix:path");
}

absl::Status CheckOptionalTcpAddress(absl::string_view name, const std::string& value) {
  const bool is_tcp = IsListenAddress(value) && !absl::StartsWith(value, "unix:");
  return value.empty() || is_tcp ? absl::OkStatus() : BadAddress(name, value, "host:port, or empty for none");
}

std::string FlagAsTyped(absl::string_view name) {
  return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

absl::Status CheckFlagRange(absl::string_view name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return InvalidArgument(FlagAsTyped(name), " is ", value, ", it must be ", min, " .. ", max);
}

}  // namespace quire
