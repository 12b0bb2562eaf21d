// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_CHARACTER_DFA_H_
#define QUIRE_GRAMMAR_CHARACTER_DFA_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/code_points.h"
#include "grammar/regex_parser.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

// A set of texts as a deterministic automaton over characters, which can be intersected and negated. A grammar itself
// cannot. Functions that may make large automata return INVALID_ARGUMENT beyond kMaxCharacterStates, and when they have
// taken all of `*steps`.
inline constexpr int kMaxCharacterStates = 20'000;

class CharacterDfa {
 public:
  // The texts of an expression, which uses no rules and writes texts as they are (RegexText::kPlain).
  static absl::StatusOr<CharacterDfa> Of(const SyntaxTree& tree, ExprId expr, int64_t* steps);
  // All texts of min .. max characters; kUnbounded has no limit.
  static CharacterDfa OfLengths(int min, int max);
  // All texts of these characters.
  static CharacterDfa OfCharacters(const CodePointSet& characters);
  // The complement: all other texts.
  static CharacterDfa Except(const std::vector<std::string>& texts);

  absl::StatusOr<CharacterDfa> Intersection(const CharacterDfa& other, int64_t* steps) const;
  CharacterDfa Complement() const;

  // The non-empty texts, divided by sets of first characters after which the same texts may follow.
  struct Continuation;
  std::vector<Continuation> Continuations() const;

  bool Matches(std::string_view text) const;
  bool empty() const;
  // The ranges of characters of all states, at least 1.
  int num_ranges() const;
  // Adds the texts to a grammar.
  ExprId AddTo(RegexText text, SyntaxTree* tree) const;

 private:
  friend class SubsetBuilder;

  struct Edge {
    CodePointRange range;
    int to;
  };
  struct State {
    std::vector<Edge> edges = {};  // The ranges ascend. Where there is none, no text continues.
    bool is_final = false;
  };

  // What may follow behind a state.
  CharacterDfa From(int state) const;
  static int Next(const State& state, uint32_t character);
  // For each state, says whether a text leads from it to the end.
  std::vector<bool> LiveStates() const;

  std::vector<State> states_;  // 0 is the start.
};

struct CharacterDfa::Continuation {
  CodePointSet first;
  CharacterDfa rest;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_CHARACTER_DFA_H_
