// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_REGEX_LOOKAHEAD_H_
#define QUIRE_GRAMMAR_REGEX_LOOKAHEAD_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace quire::grammar {

// A part of a regular expression: a lookahead (?=...) or (?!...) without what is around it.
struct Lookahead {
  size_t begin;
  size_t end;
  bool is_negated;
};

// The lookaheads at the beginning of a regular expression, all of which look at a text from its beginning.
struct LeadingLookaheads {
  std::vector<Lookahead> list = {};
  size_t rest = 0;  // The place of the expression behind them.
};

// Looks at the expression from `begin` on. Returns nothing in the list if there are none, or if the expression has
// several alternatives, or if it may begin within a text.
LeadingLookaheads FindLeadingLookaheads(std::string_view pattern, size_t begin, bool is_search);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_REGEX_LOOKAHEAD_H_
