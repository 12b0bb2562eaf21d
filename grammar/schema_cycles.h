// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_CYCLES_H_
#define QUIRE_GRAMMAR_SCHEMA_CYCLES_H_

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "grammar/schema_document.h"

namespace quire::grammar {

// Finds schemas that demand of a value only that it fits the same schema, through references, allOf and similar
// keywords.
class SchemaCycles {
 public:
  explicit SchemaCycles(const SchemaDocument& document) : document_(document) {}

  // INVALID_ARGUMENT, with the place and the keyword, when there is such a cycle, or when schemas refer to each other
  // in too many levels.
  absl::Status Check(const SchemaJson& schema) { return Visit(schema, 0); }

 private:
  absl::Status Visit(const SchemaJson& schema, int level);
  absl::Status VisitKeyword(const SchemaJson& schema, const std::string& keyword, int level);

  const SchemaDocument& document_;
  absl::flat_hash_map<const SchemaJson*, bool> is_done_;  // A schema under way is there with false.
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_CYCLES_H_
