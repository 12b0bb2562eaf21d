// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_PARSE_ERROR_H_
#define QUIRE_GRAMMAR_PARSE_ERROR_H_

#include <cstddef>
#include <string>
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

// Describes a place in a text: the number of bytes before it, its line if the text has several, and its character. An
// example is: byte 12 in line 2, "x". REQUIRES: the text is valid UTF-8.
std::string DescribePlace(std::string_view text, size_t at);

// The error of a text that is written wrongly or uses what is not supported, with the place.
template <typename... Parts>
absl::Status ErrorAtByte(std::string_view text, size_t at, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("at ", DescribePlace(text, at), ": ", MessagePart(parts)...));
}

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_PARSE_ERROR_H_
