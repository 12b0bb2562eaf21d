// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_MERGE_H_
#define QUIRE_GRAMMAR_SCHEMA_MERGE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "grammar/schema_keywords.h"

namespace quire::grammar {

// Returns a schema that accepts the values that both accept, and no others. INVALID_ARGUMENT when the keywords of both
// cannot be written as one schema; `keyword` is the one that joins them, and `place` that of `b`. The properties of `a`
// come first.
//
// A property that one schema does not name is subject to its additionalProperties: where these are false, the property
// is forbidden.
absl::StatusOr<SchemaJson> Merge(const SchemaJson& a, const SchemaJson& b, std::string_view keyword,
                                 const SchemaPlace& place);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_MERGE_H_
