// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_VALUES_H_
#define QUIRE_GRAMMAR_SCHEMA_VALUES_H_

#include "absl/status/statusor.h"
#include "grammar/schema_document.h"
#include "grammar/schema_shape.h"
#include "grammar/schema_texts.h"

namespace quire::grammar {

// Returns whether two values are equal as JSON schemas understand it: the order of members does not matter, nor how a
// number is written (1 and 1.0).
bool AreEqual(const SchemaJson& a, const SchemaJson& b);

// Returns whether a value meets a goal. Formats are not looked at, because grammars have a part of their texts only.
// INVALID_ARGUMENT when a schema is wrong or has what is not supported.
absl::StatusOr<bool> MeetsGoal(const SchemaJson& value, const Goal& goal, const SchemaDocument& document,
                               SchemaTexts* texts);

// Returns whether a goal demands a constant, and no constant is left, as far as the keywords const and enum tell.
bool LacksConstants(const SchemaDocument& document, const Goal& goal);

// Returns whether no value is accepted by both schemas, as far as types, constants and properties with constants tell,
// and as far as the document still allows it (SchemaDocument::TakeComparingWork).
bool AreDisjoint(const SchemaDocument& document, const SchemaJson& a, const SchemaJson& b);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_VALUES_H_
