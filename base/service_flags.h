// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_SERVICE_FLAGS_H_
#define QUIRE_BASE_SERVICE_FLAGS_H_

#include "base/log.h"
#include "base/settings.h"

namespace quire {

// The flags --max-connections, --log-level and --log-format, which all services have.

inline constexpr int kDefaultMaxConnections = 1024;

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
};

void AddMaxConnectionsFlag(int* max_connections, Settings* table);  // In the current group.
void AddLogFlags(LogOptions* options, Settings* table);             // In a group of their own.

}  // namespace quire

#endif  // QUIRE_BASE_SERVICE_FLAGS_H_
