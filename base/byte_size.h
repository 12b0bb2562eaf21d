// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_BYTE_SIZE_H_
#define QUIRE_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// Parses a number of bytes such as "1073741824", "512MiB" or "1.5GiB". The suffixes are KiB, MiB, GiB and TiB. The
// result is at least 1.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// Formats a number of bytes as in "1.5 GiB".
std::string FormatBytes(int64_t bytes);

}  // namespace quire

#endif  // QUIRE_BASE_BYTE_SIZE_H_
