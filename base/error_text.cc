// SPDX-License-Identifier: Apache-2.0

#include "base/error_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace quire {

std::string PrintableText(absl::string_view text) {
  const bool is_printable = std::all_of(text.begin(), text.end(), absl::ascii_isprint);
  return is_printable ? std::string(text) : absl::CHexEscape(text);
}

std::string ShortenedText(std::string text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    text.resize(max_bytes - 3);
    text += "...";
  }
  return text;
}

}  // namespace quire
