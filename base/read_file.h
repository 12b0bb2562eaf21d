// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_READ_FILE_H_
#define QUIRE_BASE_READ_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace quire {

// Returns all bytes of the file. Returns UNAVAILABLE, "cannot read PATH: reason", when it cannot be opened or read.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace quire

#endif  // QUIRE_BASE_READ_FILE_H_
