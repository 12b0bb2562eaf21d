// SPDX-License-Identifier: Apache-2.0

#include "client/terminal/wrapped_text.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace quire {

std::string WrapText(absl::string_view text, int columns) {
  std::string wrapped;
  bool is_first_line = true;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!is_first_line) absl::StrAppend(&wrapped, "\n");
    is_first_line = false;
    if (absl::StartsWith(line, " ")) {
      absl::StrAppend(&wrapped, line);
      continue;
    }
    size_t width = 0;  // The length of the line so far.
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      const bool fits = width > 0 && width + 1 + word.size() <= static_cast<size_t>(columns);
      if (width > 0) absl::StrAppend(&wrapped, fits ? " " : "\n");
      absl::StrAppend(&wrapped, word);
      width = fits ? width + 1 + word.size() : word.size();
    }
  }
  return wrapped;
}

}  // namespace quire
