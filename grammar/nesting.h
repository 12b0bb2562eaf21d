// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_NESTING_H_
#define QUIRE_GRAMMAR_NESTING_H_

#include "grammar/automaton.h"

namespace quire::grammar {

// Returns whether some text needs rules that are nested in at most `max_depth` levels, as a Matcher counts them.
// Without such a text every output would end early.
bool HasTextWithin(const Automaton& automaton, int max_depth);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_NESTING_H_
