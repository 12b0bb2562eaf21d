// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GRAMMAR_TRIAL_SOURCES_H_
#define QUIRE_TESTS_GRAMMAR_TRIAL_SOURCES_H_

#include <vector>

#include "grammar/grammar.h"

namespace quire::grammar {

// Sources of all kinds, which compile. Together they have what is difficult for masks: characters that tokens divide,
// ends of rules within tokens, counted repetitions, recursion, and texts that can be read in several ways.
std::vector<Source> TrialSources();

}  // namespace quire::grammar

#endif  // QUIRE_TESTS_GRAMMAR_TRIAL_SOURCES_H_
