// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_NFA_H_
#define QUIRE_GRAMMAR_NFA_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

// A nondeterministic automaton of one rule. State 0 is the start.
struct Nfa {
  struct State {
    enum class Kind { kJump, kBytes, kCall, kEnd };

    Kind kind = Kind::kJump;
    uint8_t first = 0;  // kBytes: the range of bytes that lead to next[0].
    uint8_t last = 0;
    RuleId rule = -1;            // kCall: the rule whose texts lead to next[0].
    int32_t next[2] = {-1, -1};  // kJump: the states that are entered together with this one; -1 is none.
  };

  std::vector<State> states;
};

// Says which rules are compiled into the rules that use them: small ones that do not use themselves, even by way of
// others. [num_rules]
std::vector<bool> InlinedRules(const SyntaxTree& tree);

// Appends the automaton of a rule to an empty `nfa`. INVALID_ARGUMENT when it has more than `max_states` states.
absl::Status BuildNfa(const SyntaxTree& tree, RuleId rule, const std::vector<bool>& is_inlined, int max_states,
                      Nfa* nfa);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_NFA_H_
