// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SHARED_PARTS_H_
#define QUIRE_GRAMMAR_SHARED_PARTS_H_

#include "grammar/syntax_tree.h"

namespace quire::grammar {

// Makes a rule of each large expression that occurs at several places, so that it is compiled once: a string with a
// length limit, for example, or a format that many properties have. The texts of the grammar stay the same.
void ShareParts(SyntaxTree* tree);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SHARED_PARTS_H_
