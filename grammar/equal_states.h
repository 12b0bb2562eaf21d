// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_EQUAL_STATES_H_
#define QUIRE_GRAMMAR_EQUAL_STATES_H_

#include <cstdint>
#include <vector>

#include "grammar/automaton.h"

namespace quire::grammar {

// Finds states of a rule that no text of at most `max_bytes` bytes tells apart. The result has for each state of the
// rule, in their order, the first state that is equal to it. For example, the states of a string of at most 2000
// characters are equal after which more than `max_bytes` characters may come. Subtracts what it does from *work, one
// for each transition that it looks at. If that takes more than kMaxEqualStatesWork beyond a look at each, no states
// count as equal.
std::vector<StateId> FindEqualStates(const Automaton& automaton, RuleId rule, int max_bytes, int64_t* work);
inline constexpr int64_t kMaxEqualStatesWork = 2'000'000;

// Rules with fewer states have hardly any that are equal.
inline constexpr int kManyStates = 100;
// Finds them for all rules with many states, and leaves the results of other rules empty. If all of them take more than
// kMaxAllEqualStatesWork, no states of the rest count as equal. [rules]
inline constexpr int64_t kMaxAllEqualStatesWork = 8'000'000;
std::vector<std::vector<StateId>> FindAllEqualStates(const Automaton& automaton, int max_bytes);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_EQUAL_STATES_H_
