// SPDX-License-Identifier: Apache-2.0

#include "grammar/parse_error.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "base/utf8.h"

namespace quire::grammar {

std::string DescribePlace(std::string_view text, size_t at) {
  const auto first_of_place = text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size()));
  std::string place = absl::StrCat("byte ", at);
  if (text.find('\n') != text.npos) {
    absl::StrAppend(&place, " in line ", 1 + std::count(text.begin(), first_of_place, '\n'));
  }
  if (at >= text.size()) return place + ", the end";
  const std::string_view character = text.substr(at, Utf8Length(text[at]));
  return absl::StrCat(place, ", \"", absl::Utf8SafeCHexEscape(MessagePart(character)), "\"");
}

}  // namespace quire::grammar
