// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_REGEX_PARSER_H_
#define QUIRE_GRAMMAR_REGEX_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

// Says how the texts of a regular expression are written.
enum class RegexText {
  kPlain,       // The texts are written as they are.
  kJsonString,  // They are written as inside of a JSON string, where some characters need an escape.
};

// Adds the texts that match a regular expression. The syntax is as in ECMAScript with the flag u: characters, `.`,
// classes in brackets, \d \w \s \D \W \S, \t \n \r \f \v \0 \xhh \uhhhh \u{h...} \cX, groups (also named ones, whose
// names mean nothing), `|`, and the repetitions * + ? {m} {m,} {m,n}, which may be lazy. Of Python, groups
// (?P<name>...) and the assertions \A and \Z are read, too. The flags i and s may come at the beginning, as in (?i), or
// for a group, as in (?i:...). With i, letters of ASCII match both cases. The expression has to match a whole text. ^,
// $, \b and \B may stand anywhere; all but a ^ at the beginning and a $ at the end need a CharacterDfa for the texts,
// which has a limit.
//
// Lookaheads need one, too. They may stand at the beginning of an expression, behind ^ where it may match a part of a
// text.
//
// INVALID_ARGUMENT, with the place, when the expression is wrong or uses what is not supported: other lookaheads and
// lookbehind, references to groups, and properties of characters other than general categories, as in \p{L}.
absl::StatusOr<ExprId> ParseRegex(std::string_view pattern, RegexText text, SyntaxTree* tree);

// The same, and INVALID_ARGUMENT when no text matches, with the place of a class without a character.
absl::StatusOr<ExprId> ParseMatchableRegex(std::string_view pattern, RegexText text, SyntaxTree* tree);

// The same as ParseRegex for a pattern that may match any part of a text, as in JSON schemas: other characters
// may come first if it does not begin with ^, and last if it does not end with $.
absl::StatusOr<ExprId> ParseRegexSearch(std::string_view pattern, RegexText text, SyntaxTree* tree);

// Adds the characters of the set as RegexText writes them.
ExprId Characters(const CodePointSet& set, RegexText text, SyntaxTree* tree);

// Reads a class in brackets, as [a-z_] or [^"]. `*at` is at the opening bracket, and moves behind the closing one.
absl::StatusOr<CodePointSet> ParseClass(std::string_view pattern, size_t* at);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_REGEX_PARSER_H_
