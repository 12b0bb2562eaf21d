// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_STRING_KINDS_H_
#define QUIRE_GRAMMAR_STRING_KINDS_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/character_dfa.h"
#include "grammar/code_points.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

// The names of the groups of a kind: fewer kinds, and even fewer. Kinds with the same name may be joined.
using KindGroups = std::array<std::string, 2>;

// Joins kinds that have the same group on a level. `groups` [kinds] becomes [kinds of the result]; a kind gets the
// groups of its first part. REQUIRES: groups of a lower level lie within groups of a higher one.
std::vector<ExprId> JoinGroups(const std::vector<ExprId>& kinds, size_t level, std::vector<KindGroups>* groups,
                               SyntaxTree* tree);

struct FirstCharacter {
  CodePointSet characters;
  KindGroups groups;
};

// Sets of characters, in their order. Every character is in one set. So strings are different if they begin with
// characters of different sets. Characters with which words begin often have a set of their own.
const std::vector<FirstCharacter>& FirstCharacters();

// Texts by their first characters, as JSON strings have them.
class StringKinds {
 public:
  // `end` follows each text. What may follow a first character becomes a rule of the tree.
  StringKinds(const CharacterDfa& texts, ExprId end, SyntaxTree* tree);

  // The texts that begin with a character of the set, or nothing if there is none.
  std::optional<ExprId> BeginningWith(const CodePointSet& first) const;

 private:
  SyntaxTree* tree_;
  std::vector<std::pair<CodePointSet, RuleId>> rests_;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_STRING_KINDS_H_
