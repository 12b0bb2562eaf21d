// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_TAG_SEARCH_H_
#define QUIRE_GATEWAY_OPENAI_TAG_SEARCH_H_

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace quire {

// Returns how many bytes at the end of `text` could be the beginning of `tag`. These wait for the text that follows.
inline size_t PossibleTagBytes(absl::string_view text, absl::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (absl::EndsWith(text, tag.substr(0, n))) return n;
  }
  return 0;
}

// Returns whether `text` could still become `tag`.
inline bool CouldBecome(absl::string_view text, absl::string_view tag) {
  return text.size() < tag.size() && absl::StartsWith(tag, text);
}

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_TAG_SEARCH_H_
