// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_TEXT_PATTERN_H_
#define QUIRE_GATEWAY_OPENAI_TEXT_PATTERN_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// Returns characters as they are written in a regular expression between slashes, within a class and outside.
std::string EscapedInPattern(absl::string_view text);

// Returns a regular expression for any text that does not contain a tag, followed by this tag. White space around the
// tag in `tag` comes before and behind it. An example: "<b>" gives "a <<b>", but not "<b><b>". REQUIRES: the tag has at
// least two characters, and its first character is nowhere else in it.
std::string PatternUntil(absl::string_view tag);

// Returns a regular expression for any text that does not contain the tag. Its texts and the tag behind them are those
// of PatternUntil.
std::string PatternWithout(absl::string_view tag);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_TEXT_PATTERN_H_
