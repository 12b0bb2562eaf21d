// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_NUMBER_TEXT_H_
#define QUIRE_BASE_NUMBER_TEXT_H_

#include <array>
#include <charconv>
#include <string>

namespace quire {

// Returns the shortest text that is read back as the same number, such as "1.0000001" where absl::StrCat returns "1".
// So the value in an error never looks like one that its limit allows.
template <typename Number>
std::string NumberText(Number value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace quire

#endif  // QUIRE_BASE_NUMBER_TEXT_H_
