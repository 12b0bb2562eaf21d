// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_KEYWORDS_H_
#define QUIRE_GRAMMAR_SCHEMA_KEYWORDS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grammar/schema_place.h"

namespace quire::grammar {

// Returns whether two values are equal as JSON schemas understand it: the order of members does not matter, nor how a
// number is written (1 and 1.0).
bool AreEqual(const SchemaJson& a, const SchemaJson& b);

// Returns whether a keyword has no effect on what is accepted.
bool IsAnnotation(std::string_view keyword);

// The error of a value that is neither an object nor a boolean.
absl::Status NoSchemaError(const SchemaPlace& place, const SchemaJson& value);

// Checks that a schema is an object or a boolean with supported keywords only.
absl::Status CheckKeywords(const SchemaJson& schema, const SchemaPlace& place, bool is_root);

// The types that a schema describes: those of `type`, or the one type that its other keywords are for, or all.
absl::StatusOr<std::set<std::string>> TypesOf(const SchemaJson& schema, const SchemaPlace& place);
// The type of a value. An integer has the type "integer".
std::string TypeOfValue(const SchemaJson& value);

// The keywords for values of one type only that a schema has.
std::set<std::string> TypedKeywords(const SchemaJson& schema);

// Reads a count, or nothing if the schema does not have the keyword.
absl::StatusOr<std::optional<int>> CountOf(const SchemaJson& schema, const char* keyword, const SchemaPlace& place);

// The part of the document that the keyword $ref of a schema names, with the place. References to other documents, and
// into schemas with an identity of their own, are errors.
struct Referenced {
  const SchemaJson* schema;
  SchemaPlace place;
};
absl::StatusOr<Referenced> Resolve(const SchemaJson& root, const SchemaJson& schema, const SchemaPlace& place);

// Returns whether no value is accepted by both schemas, as far as types, constants and properties with constants tell.
bool AreDisjoint(const SchemaJson& root, const SchemaJson& a, const SchemaJson& b);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_KEYWORDS_H_
