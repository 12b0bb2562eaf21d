// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_NUMBER_TEXT_H_
#define QUIRE_BASE_NUMBER_TEXT_H_

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quire {

// Returns the shortest text that is read back as the same number, such as "1.0000001" where absl::StrCat returns "1".
// So the value in an error never looks like one that its limit allows.
template <typename Number>
std::string NumberText(Number value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// Returns a limit as errors show it to a person: "1000000" and not "1e+06", and "the largest float32 number (about
// 3.4e38)" and not "3.40282e+38". Fractions have at most 9 digits.
std::string LimitText(double limit);

// Returns the value of a hexadecimal digit, whose letter may be of either case, or -1 for any other character.
constexpr int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Parses a number of bytes such as "1073741824", "512MiB" or "1.5GiB". The suffixes are KiB, MiB, GiB and TiB. The
// result is at least 1.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// Formats a number of bytes as in "1.5 GiB".
std::string FormatBytes(int64_t bytes);

// Returns the count with its noun, whose plural has an "s": "1 block", "2 blocks".
inline std::string Counted(uint64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace quire

#endif  // QUIRE_BASE_NUMBER_TEXT_H_
