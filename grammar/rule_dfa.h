// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_RULE_DFA_H_
#define QUIRE_GRAMMAR_RULE_DFA_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "grammar/nfa.h"

namespace quire::grammar {

// A deterministic automaton of one rule with its own numbers of states. It does not match the empty text.
struct RuleDfa {
  struct State {
    std::vector<int32_t> next;                      // [num_classes], -1 is none.
    std::vector<std::pair<RuleId, int32_t>> calls;  // Each rule occurs at most once.
    bool is_final = false;
  };

  std::vector<State> states;  // 0 is the start, which is not final.
  std::array<uint8_t, 256> classes;
  int num_classes = 0;
};

// Turns an Nfa into a RuleDfa by the construction of subsets, without the empty text. Subtracts the steps that it takes
// from *work. Returns false when there would be more than `max_states` states, or when *work has been used up.
bool MakeRuleDfa(const Nfa& nfa, bool is_nullable, int max_states, int64_t* work, RuleDfa* out);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_RULE_DFA_H_
