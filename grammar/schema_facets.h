// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_FACETS_H_
#define QUIRE_GRAMMAR_SCHEMA_FACETS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grammar/schema_document.h"
#include "grammar/schema_expander.h"

namespace quire::grammar {

// Narrows a shape by a keyword of a schema that is for values of its type. The scope learns what it evaluates.
absl::Status AssertFacet(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                         int scope, Alternative* to);

// Appends the ways in which the keyword does not hold. INVALID_ARGUMENT when they cannot be written as shapes.
absl::Status DenyFacet(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                       std::vector<Alternative::Branch>* branches);

// Returns false when it can be seen at once that no value has the shape.
bool CanHold(const SchemaDocument& document, const Shape& shape);

// Returns whether properties may come that no schema names: if some schema has additionalProperties, and if none names
// or describes any.
bool IsOpen(const Shape& shape);

// Returns whether values of a shape are written. A schema without "type" is taken for one of the only type for which it
// has keywords, and properties that no schema names come only if it says so.
bool IsWritten(const Shape& shape);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_FACETS_H_
