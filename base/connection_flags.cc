// SPDX-License-Identifier: Apache-2.0

#include "base/connection_flags.h"

#include <cstdint>

#include "absl/flags/flag.h"
#include "base/flags.h"
#include "base/status.h"

ABSL_FLAG(int32_t, max_connections, quire::kDefaultMaxConnections,
          "Largest number of connections at --listen, 1 to 100000. Further connections are closed at once, and the log "
          "says so.");

namespace quire {

absl::StatusOr<int> ReadMaxConnections() {
  const int32_t value = absl::GetFlag(FLAGS_max_connections);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_connections", value, 1, 100'000));
  return value;
}

}  // namespace quire
