// SPDX-License-Identifier: Apache-2.0

#include "grammar/regex_lookahead.h"

#include <algorithm>

namespace quire::grammar {
namespace {

// Returns the place of the first of some characters that is in no group, class or escape, from `at` on, or npos.
size_t FindOutside(std::string_view pattern, size_t at, std::string_view characters) {
  int depth = 0;
  bool is_class = false;
  for (; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (!is_class && depth == 0 && characters.find(c) != characters.npos) return at;
    if (c == '\\') {
      ++at;
    } else if (is_class || c == '[') {
      is_class = c != ']';
    } else if (c == '(') {
      ++depth;
    } else if (c == ')') {
      --depth;
    }
  }
  return std::string_view::npos;
}

}  // namespace

LeadingLookaheads FindLeadingLookaheads(std::string_view pattern, size_t begin, bool is_search) {
  LeadingLookaheads found;
  const std::string_view all = pattern.substr(begin);
  size_t at = begin + (all.starts_with('^') ? 1 : all.starts_with("\\A") ? 2 : 0);
  if (is_search && at == begin) return found;
  while (pattern.substr(at).starts_with("(?=") || pattern.substr(at).starts_with("(?!")) {
    const size_t inner = at + 3;
    const size_t end = FindOutside(pattern, inner, ")");
    if (end == pattern.npos) return {};
    found.list.push_back({inner, end, pattern[at + 2] == '!'});
    at = end + 1;
  }
  if (FindOutside(pattern, at, "|") != pattern.npos) return {};
  found.rest = at;
  return found;
}

}  // namespace quire::grammar
