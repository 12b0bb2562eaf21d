// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_merge.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire::grammar {
namespace {

bool AcceptsAll(const SchemaJson& schema) {
  if (!schema.is_object()) return schema == true;
  const auto keywords = schema.items();
  return std::all_of(keywords.begin(), keywords.end(), [](const auto& entry) { return IsAnnotation(entry.key()); });
}

// The one of two schemas that accepts what both accept, or null when neither can be seen to be it.
const SchemaJson* Narrower(const SchemaJson& a, const SchemaJson& b) {
  if (b == false || AcceptsAll(a)) return &b;
  if (a == false || AcceptsAll(b) || AreEqual(a, b)) return &a;
  return nullptr;
}

// Adds a keyword of one schema to the other. Returns whether that is the meaning of both.
bool MergeKeyword(const std::string& keyword, const SchemaJson& from, SchemaJson* to) {
  if (!to->contains(keyword)) {
    (*to)[keyword] = from;
    return true;
  }
  SchemaJson& old = (*to)[keyword];
  if (keyword == "required" && old.is_array() && from.is_array()) {
    for (const SchemaJson& name : from) {
      if (std::find(old.begin(), old.end(), name) == old.end()) old.push_back(name);
    }
    return true;
  }
  if (keyword == "properties" && old.is_object() && from.is_object()) {
    for (const auto& [name, schema] : from.items()) {
      if (!old.contains(name)) {
        old[name] = schema;
        continue;
      }
      const SchemaJson* narrower = Narrower(old[name], schema);
      if (narrower == nullptr) return false;
      if (narrower == &schema) old[name] = schema;
    }
    return true;
  }
  if (keyword != "additionalProperties") return AreEqual(old, from);
  const SchemaJson* narrower = Narrower(old, from);
  if (narrower == &from) old = from;
  return narrower != nullptr;
}

// Narrows the properties of `from` by the additionalProperties of `other`, where `other` does not name them.
absl::Status NarrowProperties(const SchemaJson& from, const SchemaJson& other, std::string_view keyword,
                              const SchemaPlace& place, SchemaJson* merged) {
  if (!other.contains("additionalProperties") || !from.contains("properties")) return absl::OkStatus();
  const SchemaJson& rule = other["additionalProperties"];
  for (const auto& [name, schema] : from["properties"].items()) {
    if (other.contains("properties") && other["properties"].contains(name)) continue;
    // To copy a rule to every property could make the schema very large, so it stays where it is.
    const bool is_wider = schema == false || AcceptsAll(rule) || AreEqual(schema, rule);
    if (is_wider) continue;
    if (rule != false) {
      return SchemaError(place, "the keyword \"", keyword, "\" joins the property ", SchemaJson(name).dump(),
                         " with the \"additionalProperties\" of a schema that does not name it");
    }
    (*merged)["properties"][name] = false;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SchemaJson> Merge(const SchemaJson& a, const SchemaJson& b, std::string_view keyword,
                                 const SchemaPlace& place) {
  if (a == true || b == false) return b;
  if (b == true || a == false) return a;
  for (const SchemaJson* schema : {&a, &b}) {
    if (!schema->is_object()) return NoSchemaError(place, *schema);
    if (schema->contains("properties") && !(*schema)["properties"].is_object()) {
      return KeywordError(place, *schema, "properties", ", it must be an object of schemas");
    }
  }
  const auto has_items_for_rest_of = [](const SchemaJson& one, const SchemaJson& other) {
    return one.contains("items") && other.contains("prefixItems") &&
           (other.contains("items") || !one.contains("prefixItems"));
  };
  if (has_items_for_rest_of(a, b) || has_items_for_rest_of(b, a)) {
    return SchemaError(place, "the keyword \"", keyword, "\" joins items with a schema that describes some of them");
  }
  SchemaJson merged = a;
  bool has_own = false;
  for (const auto& [name, value] : a.items()) has_own |= !IsAnnotation(name);
  for (const auto& [name, value] : b.items()) {
    if (IsAnnotation(name)) continue;
    const bool is_reference = (name == "$ref" && has_own) || a.contains("$ref");
    if (is_reference || !MergeKeyword(name, value, &merged)) {
      return SchemaError(place.Child(name), "the keyword \"", keyword, "\" joins schemas that both have \"", name,
                         "\", or one with a $ref; its value is ", Shown(value), " here",
                         a.contains(name) ? absl::StrCat(" and ", Shown(a[name]), " elsewhere") : "");
    }
  }
  QUIRE_RETURN_IF_ERROR(NarrowProperties(a, b, keyword, place, &merged));
  QUIRE_RETURN_IF_ERROR(NarrowProperties(b, a, keyword, place, &merged));
  return merged;
}

}  // namespace quire::grammar
