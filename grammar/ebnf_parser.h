// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_EBNF_PARSER_H_
#define QUIRE_GRAMMAR_EBNF_PARSER_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

inline constexpr int kMaxRules = 2000;

// Reads a grammar in one of two notations:
//   GBNF, as in llama.cpp: `name ::= body`, and the text begins with the rule `root`.
//   Lark: `name: body`, and the text begins with the rule `start`. Marks in front of a name (?, !) mean nothing.
// A body has alternatives with `|`. Each is a row of literals "text" (with escapes), classes [a-z], regular expressions
// /.../, names of rules, and bodies in parentheses, each of which * + ? {m} {m,} {m,n} may repeat. In Lark, brackets
// hold an optional body, "a".."z" is a class, and ~ m and ~ m..n repeat; `%json {...}`, as in llguidance, is a value of
// the JSON schema in the braces, and `<name>`, as there, the special token "<name>" or this text. Comments begin with #
// or //. A rule ends where the next one begins.
//
// INVALID_ARGUMENT, with the place, when the grammar is wrong, when it uses a rule that it does not define, or has what
// is not supported: other directives of Lark (%import, %ignore), flags of literals and regular expressions, priorities,
// templates and aliases.
absl::StatusOr<SyntaxTree> ParseEbnf(std::string_view text);

// Returns the grammar with the schemas of %json as WithoutAnnotations (schema_annotations.h) leaves them. A grammar
// that is wrong stays as it is.
std::string WithoutSchemaAnnotations(std::string_view text);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_EBNF_PARSER_H_
