// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_JSON_SCHEMA_H_
#define QUIRE_GRAMMAR_JSON_SCHEMA_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "grammar/json_text.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

// Reads a JSON schema (draft 2020-12). Every text of the grammar is a value that the schema accepts, but not every such
// value is a text of the grammar:
//   - Properties come in the order of `properties`, and then the others of `required`. Other properties
//     come last, and only if `additionalProperties` is there, if `patternProperties` describes them, or if neither
//     `properties` nor `required` is there.
//   - A schema without `type`, with keywords for values of one type only, describes values of this type only.
//   - Numbers are as in JsonText. With bounds they have no exponent.
// docs/guided.md says what is supported. Keywords that are not known have no effect.
//
// INVALID_ARGUMENT, with the place as a JSON pointer and the keyword, for everything else.
absl::StatusOr<SyntaxTree> ParseJsonSchema(std::string_view text);

// Adds the texts of a JSON schema to a grammar. `json` writes to `tree`, and schemas of one grammar share it. After an
// error the tree cannot be used.
absl::StatusOr<ExprId> AddJsonSchema(std::string_view text, SyntaxTree* tree, JsonText* json);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_JSON_SCHEMA_H_
