// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_FUZZ_SOURCE_MUTATOR_H_
#define QUIRE_TESTS_FUZZ_SOURCE_MUTATOR_H_

#include <string>

#include "grammar/grammar.h"
#include "tests/random.h"

namespace quire::grammar {

// Changes the text of a source at random, so that it mostly stays a source of this kind: pieces are whole
// subexpressions, schemas are changed as JSON values, and names are taken from the text. The lines of a text of the
// kind kChoice are its choices.
std::string ChangedSource(Source::Kind kind, std::string text, Random* random);

}  // namespace quire::grammar

#endif  // QUIRE_TESTS_FUZZ_SOURCE_MUTATOR_H_
