#include "base/flags.h"

#include <algorithm>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr size_t kHelpColumns = 100;

absl::CommandLineFlag* Find(const std::string& name, absl::Span<const char* const> names) {
  const auto is_name = [&name](const char* known) { return name == known; };
  return std::any_of(names.begin(), names.end(), is_name) ? absl::FindCommandLineFlag(name) : nullptr;
}

absl::string_view Expected(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<double>()) return "a number";
  if (flag.IsOfType<absl::Duration>()) return "a duration such as 30s or 500ms";
  return "a whole number";
}

absl::Status SetFlag(absl::CommandLineFlag* flag, absl::string_view value) {
  std::string error;
  if (flag->ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(FlagAsTyped(flag->Name()), " is '", value, "', it must be ", Expected(*flag)));
}

// The words of `text`, each line indented and at most kHelpColumns long.
std::string Wrap(absl::string_view text) {
  std::string wrapped;
  std::string line = "     ";
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (line.size() + 1 + word.size() > kHelpColumns) {
      absl::StrAppend(&wrapped, line, "\n");
      line = "     ";
    }
    absl::StrAppend(&line, " ", word);
  }
  return absl::StrCat(wrapped, line, "\n");
}

}  // namespace

absl::Status SetFlags(absl::Span<const char* const> arguments, absl::Span<const char* const> names) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view text = arguments[i];
    if (!absl::ConsumePrefix(&text, "--")) {
      return absl::InvalidArgumentError(absl::StrCat("'", arguments[i], "' is not a flag; see --help"));
    }
    const size_t equals = text.find('=');
    absl::CommandLineFlag* flag = Find(absl::StrReplaceAll(text.substr(0, equals), {{"-", "_"}}), names);
    if (flag == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("there is no flag --", text.substr(0, equals), "; see --help"));
    }
    if (equals != absl::string_view::npos) {
      QUIRE_RETURN_IF_ERROR(SetFlag(flag, text.substr(equals + 1)));
    } else if (flag->IsOfType<bool>()) {
      QUIRE_RETURN_IF_ERROR(SetFlag(flag, "true"));
    } else if (i + 1 < arguments.size()) {
      QUIRE_RETURN_IF_ERROR(SetFlag(flag, arguments[++i]));
    } else {
      return absl::InvalidArgumentError(absl::StrCat(FlagAsTyped(flag->Name()), " has no value"));
    }
  }
  return absl::OkStatus();
}

std::string DescribeFlags(absl::Span<const char* const> names) {
  std::string text;
  for (const char* name : names) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    const std::string value = flag->DefaultValue();
    absl::StrAppend(&text, "  ", FlagAsTyped(name), value.empty() ? "" : "=", value, "\n", Wrap(flag->Help()));
  }
  return text;
}

std::string FlagAsTyped(absl::string_view name) {
  return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

}  // namespace quire
