#include "worker/flags.h"

#include <algorithm>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace quire {
namespace {

absl::CommandLineFlag* Find(const std::string& name, absl::Span<const char* const> names) {
  const auto is_name = [&name](const char* known) { return name == known; };
  return std::any_of(names.begin(), names.end(), is_name) ? absl::FindCommandLineFlag(name) : nullptr;
}

absl::Status SetFlag(absl::CommandLineFlag* flag, const std::string& value) {
  std::string error;
  if (flag->ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", WithDashes(flag->Name()), " is '", value, "', expected is ",
                                                 flag->IsOfType<bool>()     ? "true or false"
                                                 : flag->IsOfType<double>() ? "a number"
                                                                            : "a whole number"));
}

}  // namespace

absl::Status SetFlags(absl::Span<const char* const> arguments, absl::Span<const char* const> names) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument = arguments[i];
    absl::string_view text = argument;
    if (!absl::ConsumePrefix(&text, "--")) {
      return absl::InvalidArgumentError(absl::StrCat("'", argument, "' is not a flag; see --help"));
    }
    const size_t equals = text.find('=');
    const std::string name = absl::StrReplaceAll(text.substr(0, equals), {{"-", "_"}});
    absl::CommandLineFlag* flag = Find(name, names);
    if (flag == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("there is no flag --", text.substr(0, equals), "; see --help"));
    }
    if (equals != absl::string_view::npos) {
      QUIRE_RETURN_IF_ERROR(SetFlag(flag, std::string(text.substr(equals + 1))));
    } else if (flag->IsOfType<bool>()) {
      QUIRE_RETURN_IF_ERROR(SetFlag(flag, "true"));
    } else if (i + 1 < arguments.size()) {
      QUIRE_RETURN_IF_ERROR(SetFlag(flag, arguments[++i]));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("--", WithDashes(name), " has no value"));
    }
  }
  return absl::OkStatus();
}

std::string DescribeFlags(absl::Span<const char* const> names) {
  std::string text;
  for (const char* name : names) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    const std::string value = flag->DefaultValue();
    absl::StrAppend(&text, "  --", WithDashes(name), value.empty() ? "" : absl::StrCat("=", value), "\n      ",
                    flag->Help(), "\n");
  }
  return text;
}

std::string WithDashes(absl::string_view name) {
  return absl::StrReplaceAll(name, {{"_", "-"}});
}

}  // namespace quire
