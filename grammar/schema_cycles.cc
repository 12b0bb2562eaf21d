// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_cycles.h"

#include <string>

#include "base/status.h"

namespace quire::grammar {
namespace {

constexpr int kMaxReferenceLevels = 500;

}  // namespace

absl::Status SchemaCycles::Visit(const SchemaJson& schema, int level) {
  if (!schema.is_object() || is_done_.contains(&schema)) return absl::OkStatus();
  is_done_[&schema] = false;
  for (const auto& [keyword, value] : schema.items()) QUIRE_RETURN_IF_ERROR(VisitKeyword(schema, keyword, level));
  is_done_[&schema] = true;
  return absl::OkStatus();
}

absl::Status SchemaCycles::VisitKeyword(const SchemaJson& schema, const std::string& keyword, int level) {
  const SchemaJson& value = schema[keyword];
  std::vector<const SchemaJson*> parts;
  if (keyword == "$ref" || keyword == "$dynamicRef") {
    // A reference that is wrong is an error where it is used.
    if (const auto target = document_.Resolve(schema, keyword); target.ok()) parts.push_back(*target);
  } else if (keyword == "not" || keyword == "if" || keyword == "then" || keyword == "else") {
    parts.push_back(&value);
  } else if (keyword == "allOf" || keyword == "anyOf" || keyword == "oneOf" || keyword == "dependentSchemas") {
    for (const SchemaJson& part : value) parts.push_back(&part);
  }
  for (const SchemaJson* part : parts) {
    const auto known = is_done_.find(part);
    if ((known != is_done_.end() && !known->second) || level > kMaxReferenceLevels) {
      return KeywordError(document_, schema, keyword,
                          ", which leads back to its own schema, or to others in more than ", kMaxReferenceLevels,
                          " levels");
    }
    QUIRE_RETURN_IF_ERROR(Visit(*part, level + 1));
  }
  return absl::OkStatus();
}

}  // namespace quire::grammar
