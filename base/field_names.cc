// SPDX-License-Identifier: Apache-2.0

#include "base/field_names.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

bool IsInPath(char c) {
  return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
         c == '_' || c == '.';
}

// Returns the end of the text in quotes that begins at `at`.
size_t EndOfQuote(absl::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at < text.size() ? at + 1 : text.size();
}

// Returns the end of the word that begins at `at`. The point at the end of a sentence does not belong to it.
size_t EndOfWord(absl::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && IsInPath(text[end])) ++end;
  while (end > at + 1 && text[end - 1] == '.') --end;
  return end;
}

}  // namespace

std::string RenameFields(absl::string_view text,
                         const std::function<std::optional<std::string>(absl::string_view)>& name_of) {
  std::string renamed;
  for (size_t at = 0; at < text.size();) {
    const bool is_quote = text[at] == '"';
    const bool is_word = !is_quote && IsInPath(text[at]);
    const size_t end = is_quote ? EndOfQuote(text, at) : is_word ? EndOfWord(text, at) : at + 1;
    const absl::string_view part = text.substr(at, end - at);
    const bool may_be_path = is_word && part.find_first_of("._") != part.npos;
    const std::optional<std::string> name = may_be_path ? name_of(part) : std::nullopt;
    if (name.has_value()) {
      renamed += *name;
    } else {
      absl::StrAppend(&renamed, part);
    }
    at = end;
  }
  return renamed;
}

}  // namespace quire
