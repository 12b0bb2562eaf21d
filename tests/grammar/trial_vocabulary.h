// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GRAMMAR_TRIAL_VOCABULARY_H_
#define QUIRE_TESTS_GRAMMAR_TRIAL_VOCABULARY_H_

#include <cstdint>
#include <memory>

#include "grammar/token_table.h"

namespace quire::grammar {

// Returns a vocabulary like a model's: all bytes, words with and without a space in front, numbers, pieces of JSON,
// characters of several bytes and parts of them. The first two tokens have no bytes; token 1 ends a text. The same seed
// gives the same tokens. REQUIRES: size >= 300.
std::shared_ptr<const TokenTable> TrialVocabulary(int size, uint64_t seed);

}  // namespace quire::grammar

#endif  // QUIRE_TESTS_GRAMMAR_TRIAL_VOCABULARY_H_
