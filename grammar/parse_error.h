// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_PARSE_ERROR_H_
#define QUIRE_GRAMMAR_PARSE_ERROR_H_

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quire::grammar {

// Turns a part of a message into what StrCat takes; Abseil may have a string_view of its own.
template <typename T>
const T& MessagePart(const T& part) {
  return part;
}
inline absl::string_view MessagePart(std::string_view part) {
  return absl::string_view(part.data(), part.size());
}

// The error of a text that is written wrongly or uses what is not supported, with the place as a number of bytes.
template <typename... Parts>
absl::Status ErrorAtByte(size_t at, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("at byte ", at, ": ", MessagePart(parts)...));
}

// The error of a schema. `place` is its JSON pointer.
template <typename... Parts>
absl::Status SchemaError(std::string_view place, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("at #", MessagePart(place), ": ", MessagePart(parts)...));
}

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_PARSE_ERROR_H_
