// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_CONNECTION_FLAGS_H_
#define QUIRE_BASE_CONNECTION_FLAGS_H_

#include "absl/status/statusor.h"

namespace quire {

inline constexpr int kDefaultMaxConnections = 1024;

// Reads the flag --max-connections, which all services have.
absl::StatusOr<int> ReadMaxConnections();

}  // namespace quire

#endif  // QUIRE_BASE_CONNECTION_FLAGS_H_
