// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_SHAPE_H_
#define QUIRE_GRAMMAR_SCHEMA_SHAPE_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "grammar/number_text.h"
#include "grammar/schema_document.h"
#include "grammar/schema_keywords.h"

namespace quire::grammar {

// A value must fit the schema, or must not fit it.
struct Demand {
  const SchemaJson* schema;
  bool is_negated = false;
  // The index of the scope (schema_expander.h) in which the schema says what is evaluated, 0 if none asks for that.
  int scope = 0;

  auto operator<=>(const Demand&) const = default;
};
// A value must meet all demands.
using Goal = std::vector<Demand>;

// Adds a demand that is not there.
void AddDemand(const Demand& demand, Goal* goal);

// What is known of the values of one type that meet a goal. A value of a shape meets all its parts.
struct Shape {
  struct Text {
    const SchemaJson* schema;
    const char* keyword;  // "pattern" or "format".
    bool is_negated;
  };
  // Items from index `first` on.
  struct Items {
    size_t first;
    Demand item;
  };
  struct Contains {
    size_t first;  // Items before this index do not count.
    Demand item;
    int min;
    int max;  // kUnbounded has no limit.
    const SchemaJson* schema;
  };
  struct Property {
    std::string name;
    Goal value = {};
    bool is_required = false;
    bool is_forbidden = false;
    bool is_described = false;  // Named in "properties" of some schema.
    bool is_named = false;      // Named there or in "required". In a closed object only such ones come.
    bool is_allowed = false;    // Whether it may come though it is not named.
  };
  struct Pattern {
    const SchemaJson* schema;
    std::string regex;
    Demand value;
  };

  // Properties with other names than these, and that match none of the patterns, fit a schema.
  struct Rest {
    const SchemaJson* value;
    std::vector<std::string> names;
    std::vector<std::pair<const SchemaJson*, std::string>> patterns;  // With the schemas that have them.
  };

  explicit Shape(ValueType type) : type(type) {}
  Property& PropertyOf(const std::string& name);

  ValueType type;
  uint8_t implied = 0;          // The types of keywords in schemas without "type", as bits.
  bool has_type = false;        // A schema gives the type, or constants.
  bool is_constrained = false;  // The shape lacks some values of its type.
  // The values are some of these.
  std::optional<std::vector<const SchemaJson*>> constants;
  std::vector<const SchemaJson*> excluded;  // The values are none of these, which are no arrays or objects.
  NumberRule number;
  int min_length = 0;
  int max_length = kUnbounded;
  std::vector<Text> texts;
  std::vector<Goal> prefix;
  std::vector<Items> items;
  std::vector<Contains> contains;
  int min_items = 0;
  int max_items = kUnbounded;
  const SchemaJson* unique = nullptr;  // The schema with uniqueItems.
  bool has_properties = false;         // Some schema has "properties", so others do not come.
  std::vector<Property> properties;
  absl::flat_hash_map<std::string, size_t> property_indices;  // The places of names in `properties`.
  std::vector<Pattern> patterns;
  std::vector<Rest> rests;
  std::vector<const SchemaJson*> extras;  // Some property breaks the additionalProperties of each.
  std::vector<Demand> names;
  int min_properties = 0;
  int max_properties = kUnbounded;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_SHAPE_H_
