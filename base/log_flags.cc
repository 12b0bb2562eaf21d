// SPDX-License-Identifier: Apache-2.0

#include "base/log_flags.h"

#include <string>

#include "absl/flags/flag.h"
#include "base/status.h"

ABSL_FLAG(std::string, log_level, "info", "Lowest level that is logged: debug, info, warning or error.");
ABSL_FLAG(
    std::string, log_format, "text",
    "Format of the log: text or json. With json, every line is one object, including the lines that are printed at the "
    "start and errors that end the process.");

namespace quire {

FlagGroup LogFlagGroup(const std::vector<const char*>& more) {
  FlagGroup group{"Log (on standard error):", {"log_level", "log_format"}};
  group.names.insert(group.names.end(), more.begin(), more.end());
  return group;
}

absl::StatusOr<LogOptions> ReadLogFlags() {
  LogOptions options;
  QUIRE_ASSIGN_OR_RETURN(options.level, FlagChoice<LogLevel>(FLAGS_log_level, {{"debug", LogLevel::kDebug},
                                                                               {"info", LogLevel::kInfo},
                                                                               {"warning", LogLevel::kWarning},
                                                                               {"error", LogLevel::kError}}));
  QUIRE_ASSIGN_OR_RETURN(options.format, FlagChoice<LogFormat>(FLAGS_log_format, {{"text", LogFormat::kText},
                                                                                  {"json", LogFormat::kJson}}));
  return options;
}

}  // namespace quire
