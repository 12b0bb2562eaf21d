// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GRAMMAR_RANDOM_TEXT_H_
#define QUIRE_TESTS_GRAMMAR_RANDOM_TEXT_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/token_masks.h"
#include "tests/random.h"

namespace quire::grammar {

// Whether the whole text matches.
bool Matches(const std::shared_ptr<const Automaton>& automaton, std::string_view text);

// Draws tokens that the masks allow, until an end token is drawn. After `num_free` tokens it looks for the end: it
// takes an end token, or a token that often leads to one. Returns nothing if that takes too long, or if no token is
// allowed.
std::optional<std::string> RandomText(const std::shared_ptr<const Automaton>& automaton, int num_free,
                                      TokenMasks* masks, Random* random);

}  // namespace quire::grammar

#endif  // QUIRE_TESTS_GRAMMAR_RANDOM_TEXT_H_
