// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_LONG_REPEAT_H_
#define QUIRE_GRAMMAR_LONG_REPEAT_H_

#include "grammar/syntax_tree.h"

namespace quire::grammar {

// The most repetitions that LongRepeat counts. More are not written.
inline constexpr int kMaxLongRepeat = 1'000'000;

// Returns min .. max texts of an expression, one after the other; kUnbounded has no limit. Many repetitions become
// calls of a rule that has 1024 of them, so that a million needs few states. REQUIRES: min <= kMaxLongRepeat.
ExprId LongRepeat(ExprId part, int min, int max, SyntaxTree* tree);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_LONG_REPEAT_H_
