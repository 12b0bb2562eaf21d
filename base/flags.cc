// SPDX-License-Identifier: Apache-2.0

#include "base/flags.h"

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace quire {
namespace {

Setting::Kind KindOf(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return Setting::Kind::kSwitch;
  if (flag.IsOfType<double>()) return Setting::Kind::kReal;
  if (flag.IsOfType<absl::Duration>()) return Setting::Kind::kTime;
  if (flag.IsOfType<std::string>()) return Setting::Kind::kText;
  return absl::EndsWith(flag.Name(), "_bytes") ? Setting::Kind::kSize : Setting::Kind::kNumber;
}

Settings SettingsOf(const ProgramFlags& flags) {
  Settings settings{flags.program, flags.purpose, flags.usage};
  for (const FlagGroup& group : flags.groups) {
    settings.Group(group.title);
    for (const char* name : group.names) {
      absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
      const auto parse = [flag](const std::string& text) {
        std::string error;
        return flag->ParseFrom(text, &error);
      };
      settings.Add(
          {name, KindOf(*flag), flag->Help(), flag->DefaultValue(), parse, [flag] { return flag->CurrentValue(); }});
    }
  }
  return settings;
}

}  // namespace

absl::StatusOr<std::optional<std::string>> ReadFlags(const ProgramFlags& flags,
                                                     absl::Span<const char* const> arguments) {
  const Settings settings = SettingsOf(flags);
  if (std::optional<std::string> text = HelpOrVersion(settings, arguments)) return text;
  std::vector<FlagValue> values;
  QUIRE_RETURN_IF_ERROR(ParseArguments(settings, arguments, &values));
  for (const FlagValue& value : values) QUIRE_RETURN_IF_ERROR(SetFlag(value));
  return std::nullopt;
}

}  // namespace quire
