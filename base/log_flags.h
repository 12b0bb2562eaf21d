// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LOG_FLAGS_H_
#define QUIRE_BASE_LOG_FLAGS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "base/flags.h"
#include "base/log.h"

namespace quire {

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
};

// The flags --log-level and --log-format, which all services have, followed by the flags in `more`.
FlagGroup LogFlagGroup(const std::vector<const char*>& more = {});
absl::StatusOr<LogOptions> ReadLogFlags();

}  // namespace quire

#endif  // QUIRE_BASE_LOG_FLAGS_H_
