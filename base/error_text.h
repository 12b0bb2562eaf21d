// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_ERROR_TEXT_H_
#define QUIRE_BASE_ERROR_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

// The texts of errors that gRPC sends. Pure functions.

namespace quire {

// gRPC sends an error in trailers, which travel in frames of headers, and peers limit these to 8 KiB. A message and the
// serialized details, which become base64, fit when they are not larger than this.
inline constexpr size_t kMaxErrorMessageBytes = 512;
inline constexpr size_t kMaxErrorDetailsBytes = 4096;

// Returns the text for grpc-message and for strings of protobuf, which must be printable: when it has bytes that are
// not printable ASCII, they become hexadecimal escapes.
std::string PrintableText(absl::string_view text);

// Returns the text if it has at most `max_bytes`, and otherwise its beginning and "...", which have `max_bytes`
// together. REQUIRES: max_bytes >= 3.
std::string ShortenedText(std::string text, size_t max_bytes);

}  // namespace quire

#endif  // QUIRE_BASE_ERROR_TEXT_H_
