// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_WRITER_H_
#define QUIRE_GRAMMAR_SCHEMA_WRITER_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/character_dfa.h"
#include "grammar/json_text.h"
#include "grammar/schema_document.h"
#include "grammar/schema_shape.h"
#include "grammar/schema_texts.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

// What writers of values need of the compiler. `place` is the schema that errors about several schemas name.
struct SchemaContext {
  SyntaxTree& tree;
  JsonText& json;
  SchemaDocument& document;
  SchemaTexts& texts;
  // Returns the texts of the values that meet a goal.
  std::function<absl::StatusOr<ExprId>(const Goal&)> use;
  std::function<absl::StatusOr<std::vector<Shape>>(ValueType, const Goal&)> expand;
};

// These add the texts of the values of a shape without constants.
absl::StatusOr<ExprId> AddNumber(const Shape& shape, const SchemaJson& place, const SchemaContext& context);
absl::StatusOr<ExprId> AddString(const Shape& shape, const SchemaJson& place, const SchemaContext& context);
absl::StatusOr<ExprId> AddArray(const Shape& shape, const SchemaJson& place, const SchemaContext& context);
absl::StatusOr<ExprId> AddUniqueArray(const Shape& shape, const SchemaContext& context);
absl::StatusOr<ExprId> AddObject(const Shape& shape, const SchemaJson& place, const SchemaContext& context);

// The strings that meet a goal.
absl::StatusOr<CharacterDfa> StringsOf(const Goal& goal, const SchemaJson& place, const SchemaContext& context);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_WRITER_H_
