// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_NFA_H_
#define QUIRE_GRAMMAR_NFA_H_

#include <cstdint>
#include <vector>

#include "grammar/syntax_tree.h"

namespace quire::grammar {

// A nondeterministic automaton of one rule. State 0 is the start.
struct Nfa {
  struct State {
    enum class Kind { kJump, kBytes, kCall, kEnd };

    Kind kind = Kind::kJump;
    int32_t first_range = 0;  // kBytes: the place of its first range.
    int32_t num_ranges = 0;
    RuleId rule = -1;            // kCall: the rule whose texts, except the empty one, lead to next[0].
    int32_t next[2] = {-1, -1};  // kJump: the states that are entered together with this one; -1 is none.
  };
  // The bytes that lead to `next`.
  struct Range {
    uint8_t first;
    uint8_t last;
    int32_t next;
  };

  std::vector<State> states;
  std::vector<Range> ranges;
};

// Says which rules match the empty text. [num_rules]
std::vector<bool> NullableRules(const SyntaxTree& tree);

// Says which rules are compiled into the rules that use them: small ones that do not use themselves, even by way of
// others. [num_rules]
std::vector<bool> InlinedRules(const SyntaxTree& tree);

// Appends the automaton of a rule to an empty `nfa`. A call of a nullable rule can also be left out, so that the called
// rule need not match the empty text. Returns false when it has more than `max_size` states and ranges.
bool BuildNfa(const SyntaxTree& tree, RuleId rule, const std::vector<bool>& is_inlined,
              const std::vector<bool>& is_nullable, int max_size, Nfa* nfa);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_NFA_H_
