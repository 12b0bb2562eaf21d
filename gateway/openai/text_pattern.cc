// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/text_pattern.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace quire {

std::string EscapedInPattern(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (absl::StrContains("/\\.*+?()[]{}|^$-", c)) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

namespace {

// A text that does not contain a tag is read by an automaton that knows how much of the tag has come.
struct TextPatterns {
  std::string text;   // Does not end with a part of the tag.
  std::string parts;  // Any number of parts of the tag, each of which begins it anew.
};

// With a tag "<ab>", a text consists of other characters than "<" and of (P)*Q, where P is <(a(b)?)? before another
// "<", and Q is <([^<a]|a([^<b]|b[^<>])).
TextPatterns PatternsFor(absl::string_view trimmed) {
  std::vector<std::string> characters;
  for (size_t i = 0; i < trimmed.size();) {
    const auto num_bytes = static_cast<size_t>(Utf8Length(trimmed[i]));
    characters.push_back(EscapedInPattern(trimmed.substr(i, num_bytes)));
    i += num_bytes;
  }
  const std::string& first = characters[0];
  std::string part;                                                      // P without its first character.
  std::string none = absl::StrCat("[^", first, characters.back(), "]");  // Q without it.
  for (size_t i = characters.size() - 2; i > 0; --i) {
    part = absl::StrCat("(", characters[i], part, ")?");
    none = absl::StrCat("([^", first, characters[i], "]|", characters[i], none, ")");
  }
  const std::string parts = absl::StrCat("(", first, part, ")*");
  return {.text = absl::StrCat("([^", first, "]|", parts, first, none, ")*"), .parts = parts};
}

}  // namespace

std::string PatternUntil(absl::string_view tag) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(tag);
  const size_t at = static_cast<size_t>(trimmed.data() - tag.data());
  const std::string before = EscapedInPattern(tag.substr(0, at));
  const TextPatterns patterns = PatternsFor(trimmed);
  return absl::StrCat(patterns.text, before.empty() ? patterns.parts : before, EscapedInPattern(trimmed),
                      EscapedInPattern(tag.substr(at + trimmed.size())));
}

std::string PatternWithout(absl::string_view tag) {
  const TextPatterns patterns = PatternsFor(absl::StripAsciiWhitespace(tag));
  return patterns.text + patterns.parts;
}

}  // namespace quire
