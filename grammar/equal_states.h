// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_EQUAL_STATES_H_
#define QUIRE_GRAMMAR_EQUAL_STATES_H_

#include <cstdint>
#include <vector>

#include "grammar/automaton.h"

namespace quire::grammar {

// Finds states of a rule that no text of at most `max_bytes` bytes tells apart. The result has for each state of the
// rule, in their order, the first state that is equal to it. In a string of at most 2000 characters, for example, all
// states are equal that have more than `max_bytes` characters to come. Subtracts what it does from *work, one for each
// transition that it looks at. If that takes more than kMaxEqualStatesWork beyond a look at each, no states count as
// equal.
std::vector<StateId> FindEqualStates(const Automaton& automaton, RuleId rule, int max_bytes, int64_t* work);
inline constexpr int64_t kMaxEqualStatesWork = 2'000'000;

// Rules with fewer states have hardly any that are equal.
inline constexpr int kManyStates = 100;
// Does it for all rules with many states, and leaves the results of the others empty. If all of them together take more
// than kMaxAllEqualStatesWork, no states of the rest count as equal. [rules]
inline constexpr int64_t kMaxAllEqualStatesWork = 8'000'000;
std::vector<std::vector<StateId>> FindAllEqualStates(const Automaton& automaton, int max_bytes);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_EQUAL_STATES_H_
