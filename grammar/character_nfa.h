// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_CHARACTER_NFA_H_
#define QUIRE_GRAMMAR_CHARACTER_NFA_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/code_points.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

// The texts of an expression as paths from state 0 to the last state. Unlike Nfa, its steps are characters.
struct CharacterNfa {
  struct Jump {
    int to;
    std::optional<Assertion> assertion;  // Condition of the jump.
  };
  struct State {
    std::vector<Jump> jumps;                            // To states that are entered together with this one.
    std::vector<std::pair<CodePointRange, int>> steps;  // To the state behind a character of a range.
  };

  std::vector<State> states;
  bool has_assertions = false;
};

// INVALID_ARGUMENT when there are too many states, or ranges of characters. REQUIRES: the expression uses no rules.
absl::StatusOr<CharacterNfa> BuildCharacterNfa(const SyntaxTree& tree, ExprId expr);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_CHARACTER_NFA_H_
