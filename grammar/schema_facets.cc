// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_facets.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/status.h"
#include "grammar/schema_formats.h"
#include "grammar/schema_values.h"

namespace quire::grammar {
namespace {

using Branches = std::vector<Alternative::Branch>;

absl::Status CannotBeDenied(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword) {
  return KeywordError(document, schema, keyword,
                      ", and where \"not\", \"oneOf\" or \"if\" need that it does not hold, ", "it is not supported");
}

// Adds the branch that does this to a shape.
template <typename Change>
void AddBranch(Branches* branches, Change change) {
  branches->push_back([change](Alternative* to) {
    to->shape.is_constrained = true;
    change(&to->shape);
  });
}

void AtMost(int bound, int* max) {
  if (*max == kUnbounded || bound < *max) *max = bound;
}

Goal& ItemAt(size_t index, Shape* shape) {
  if (shape->prefix.size() <= index) shape->prefix.resize(index + 1);
  return shape->prefix[index];
}

// Dialects before 2020-12 write prefixItems and items as items and additionalItems.
const SchemaJson* PrefixOf(const SchemaJson& schema) {
  if (schema.contains("items") && schema["items"].is_array()) return &schema["items"];
  return schema.contains("prefixItems") ? &schema["prefixItems"] : nullptr;
}
size_t NumPrefix(const SchemaJson& schema) {
  const SchemaJson* const prefix = PrefixOf(schema);
  return prefix == nullptr ? 0 : prefix->size();
}
// The schema for the items behind the prefix, if the keyword gives it.
const SchemaJson* RestOf(const SchemaJson& schema, const std::string& keyword) {
  const bool has_old_prefix = schema.contains("items") && schema["items"].is_array();
  const bool is_rest = keyword == (has_old_prefix ? "additionalItems" : "items");
  return is_rest ? &schema[keyword] : nullptr;
}

absl::Status CheckItems(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword) {
  const SchemaJson* const prefix = PrefixOf(schema);
  if (prefix != nullptr && !prefix->is_array()) {
    return KeywordError(document, schema, "prefixItems", ", it must be an array of schemas");
  }
  if (keyword == "items" && schema["items"].is_array() && schema.contains("prefixItems")) {
    return KeywordError(document, schema, "items", ", it must be a schema beside \"prefixItems\"");
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape::Contains> ContainsOf(const SchemaDocument& document, const SchemaJson& schema) {
  Shape::Contains contains{0, {&schema["contains"]}, 1, kUnbounded, &schema};
  if (schema.contains("minContains")) {
    QUIRE_ASSIGN_OR_RETURN(contains.min, CountOf(document, schema, "minContains"));
  }
  if (schema.contains("maxContains")) {
    QUIRE_ASSIGN_OR_RETURN(contains.max, CountOf(document, schema, "maxContains"));
  }
  return contains;
}

absl::Status AssertNumber(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                          Shape* shape) {
  constexpr double kBeyond = 0x1p63;
  const bool is_upper = keyword == "maximum" || keyword == "exclusiveMaximum";
  const bool is_lower = keyword == "minimum" || keyword == "exclusiveMinimum";
  // Generators write the limits of doubles as bounds. Numbers are kept within 64 bits then.
  if (const SchemaJson& value = schema[keyword]; value.is_number_float()) {
    if (is_upper && value.get<double>() >= kBeyond) {
      shape->number.AtMost(*Decimal::Of("9223372036854775807", /*max_digits=*/19), /*is_excluded=*/false);
      return absl::OkStatus();
    }
    if (is_lower && value.get<double>() <= -kBeyond) {
      shape->number.AtLeast(*Decimal::Of("-9223372036854775807", /*max_digits=*/19), /*is_excluded=*/false);
      return absl::OkStatus();
    }
  }
  if (keyword == "multipleOf") {
    QUIRE_ASSIGN_OR_RETURN(const Decimal number, DecimalOf(document, schema, keyword));
    if (number.is_zero() || number.is_negative) {
      return KeywordError(document, schema, keyword, ", it must be more than 0");
    }
    shape->number.multiples_of.push_back(number);
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const std::optional<Bound> bound, BoundOf(document, schema, keyword));
  if (!bound.has_value()) return absl::OkStatus();
  if (bound->is_upper) {
    shape->number.AtMost(bound->number, bound->is_excluded);
  } else {
    shape->number.AtLeast(bound->number, bound->is_excluded);
  }
  return absl::OkStatus();
}

absl::Status AssertString(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                          Shape* shape) {
  if (keyword == "pattern" || keyword == "format") {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, TextOf(document, schema, keyword));
    if (keyword == "pattern") {
      shape->texts.push_back({&schema, "pattern", /*is_negated=*/false});
    } else if (FindSchemaFormat(text) != nullptr) {
      shape->texts.push_back({&schema, "format", /*is_negated=*/false});
    }
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const int count, CountOf(document, schema, keyword));
  if (keyword == "minLength") shape->min_length = std::max(shape->min_length, count);
  if (keyword == "maxLength") AtMost(count, &shape->max_length);
  return absl::OkStatus();
}

absl::Status AssertArray(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                         int scope, Alternative* to) {
  Shape* const shape = &to->shape;
  if (keyword == "unevaluatedItems") {
    to->ForScopes(to->scopes[static_cast<size_t>(scope)].outer, [](auto* outer) { outer->has_all_items = true; });
  } else if (keyword == "uniqueItems") {
    QUIRE_ASSIGN_OR_RETURN(const bool is_unique, FlagOf(document, schema, keyword));
    if (is_unique) shape->unique = &schema;
  } else if (keyword == "contains") {
    to->ForScopes(scope, [&](auto* in) { in->contained.push_back(&schema[keyword]); });
    QUIRE_ASSIGN_OR_RETURN(const Shape::Contains contains, ContainsOf(document, schema));
    if (contains.min > 0 || contains.max != kUnbounded) shape->contains.push_back(contains);
  } else if (keyword == "minItems" || keyword == "maxItems") {
    QUIRE_ASSIGN_OR_RETURN(const int count, CountOf(document, schema, keyword));
    if (keyword == "minItems") shape->min_items = std::max(shape->min_items, count);
    if (keyword == "maxItems") AtMost(count, &shape->max_items);
  } else {
    QUIRE_RETURN_IF_ERROR(CheckItems(document, schema, keyword));
    if (PrefixOf(schema) == &schema[keyword]) {
      for (size_t i = 0; i < schema[keyword].size(); ++i) AddDemand({&schema[keyword][i]}, &ItemAt(i, shape));
      to->ForScopes(scope, [&](auto* in) { in->num_items = std::max(in->num_items, schema[keyword].size()); });
    } else if (const SchemaJson* rest = RestOf(schema, keyword)) {
      shape->items.push_back({NumPrefix(schema), {rest}});
      to->ForScopes(scope, [](auto* in) { in->has_all_items = true; });
    }
  }
  return absl::OkStatus();
}

void Require(const std::string& name, Shape* shape) {
  Shape::Property& property = shape->PropertyOf(name);
  property.is_required = property.is_named = true;
}

void RequireAllowed(const std::string& name, Shape* shape) {
  Shape::Property& property = shape->PropertyOf(name);
  property.is_required = property.is_allowed = true;
}

// Where a property is there, others are, or the object fits a schema.
absl::Status AssertDependencies(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                                int scope, Alternative* to) {
  QUIRE_RETURN_IF_ERROR(CheckMap(document, schema, keyword));
  for (const auto& [name, value] : schema[keyword].items()) {
    const bool is_schema = keyword == "dependentSchemas" || (keyword == "dependencies" && !value.is_array());
    if (!is_schema) QUIRE_RETURN_IF_ERROR(CheckNames(document, schema, keyword, value));
    if (!is_schema && value.empty()) continue;
    to->choices.push_back({[name = name](Alternative* in) { in->shape.PropertyOf(name).is_forbidden = true; },
                           [name = name, is_schema, scope, &value = value](Alternative* in) {
                             RequireAllowed(name, &in->shape);
                             if (is_schema) in->pending.push_back({&value, /*is_negated=*/false, scope});
                             for (size_t i = 0; !is_schema && i < value.size(); ++i) {
                               RequireAllowed(value[i].get<std::string>(), &in->shape);
                             }
                           }});
  }
  return absl::OkStatus();
}

// The schema for other properties, and which ones these are.
Shape::Rest RestOfObject(const SchemaJson& schema) {
  Shape::Rest rest{&schema["additionalProperties"], {}, {}};
  for (const char* keyword : {"properties", "patternProperties"}) {
    if (!schema.contains(keyword) || !schema[keyword].is_object()) continue;
    for (const auto& [name, value] : schema[keyword].items()) {
      if (keyword == std::string_view("properties")) {
        rest.names.push_back(name);
      } else {
        rest.patterns.push_back({&schema, name});
      }
    }
  }
  return rest;
}

absl::Status AssertObject(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                          int scope, Alternative* to) {
  Shape& shape = to->shape;
  if (keyword == "unevaluatedProperties") {
    to->ForScopes(to->scopes[static_cast<size_t>(scope)].outer, [](auto* outer) { outer->has_all_properties = true; });
  } else if (keyword == "properties" || keyword == "patternProperties") {
    QUIRE_RETURN_IF_ERROR(CheckMap(document, schema, keyword));
    shape.has_properties |= keyword == "properties";
    for (const auto& [name, value] : schema[keyword].items()) {
      if (keyword == "patternProperties") {
        shape.patterns.push_back({&schema, name, {&value}});
        to->ForScopes(scope, [&, name = name](auto* in) { in->properties.patterns.push_back({&schema, name}); });
        continue;
      }
      Shape::Property& property = shape.PropertyOf(name);
      property.is_named = property.is_described = true;
      AddDemand({&value}, &property.value);
      to->ForScopes(scope, [name = name](auto* in) { in->properties.names.push_back(name); });
    }
  } else if (keyword == "required") {
    QUIRE_RETURN_IF_ERROR(CheckNames(document, schema, keyword, schema[keyword]));
    for (const SchemaJson& name : schema[keyword]) Require(name.get<std::string>(), &shape);
  } else if (keyword == "additionalProperties") {
    shape.rests.push_back(RestOfObject(schema));
    // Names that the schema describes are no additional ones, so they have to be told apart.
    for (const std::string& name : shape.rests.back().names) shape.PropertyOf(name);
    to->ForScopes(scope, [](auto* in) { in->has_all_properties = true; });
  } else if (keyword == "propertyNames") {
    shape.names.push_back({&schema[keyword]});
  } else if (keyword == "minProperties" || keyword == "maxProperties") {
    QUIRE_ASSIGN_OR_RETURN(const int count, CountOf(document, schema, keyword));
    if (keyword == "minProperties") shape.min_properties = std::max(shape.min_properties, count);
    if (keyword == "maxProperties") AtMost(count, &shape.max_properties);
  } else {
    return AssertDependencies(document, schema, keyword, scope, to);
  }
  return absl::OkStatus();
}

absl::Status DenyNumber(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                        Branches* branches) {
  if (keyword == "multipleOf") {
    QUIRE_ASSIGN_OR_RETURN(const Decimal number, DecimalOf(document, schema, keyword));
    AddBranch(branches, [number](Shape* shape) { shape->number.no_multiples_of.push_back(number); });
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const std::optional<Bound> bound, BoundOf(document, schema, keyword));
  if (!bound.has_value()) return absl::OkStatus();
  AddBranch(branches, [bound = *bound](Shape* shape) {
    if (bound.is_upper) {
      shape->number.AtLeast(bound.number, !bound.is_excluded);
    } else {
      shape->number.AtMost(bound.number, !bound.is_excluded);
    }
  });
  return absl::OkStatus();
}

absl::Status DenyString(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                        Branches* branches) {
  if (keyword == "pattern" || keyword == "format") {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, TextOf(document, schema, keyword));
    if (keyword == "format") {
      return FindSchemaFormat(text) == nullptr ? absl::OkStatus() : CannotBeDenied(document, schema, keyword);
    }
    AddBranch(branches, [&schema](Shape* shape) { shape->texts.push_back({&schema, "pattern", /*is_negated=*/true}); });
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const int count, CountOf(document, schema, keyword));
  if (keyword == "maxLength") {
    if (count >= kMaxCount) return absl::OkStatus();  // Such long strings are not written.
    AddBranch(branches, [count](Shape* shape) { shape->min_length = std::max(shape->min_length, count + 1); });
  } else if (count > 0) {
    AddBranch(branches, [count](Shape* shape) { AtMost(count - 1, &shape->max_length); });
  }
  return absl::OkStatus();
}

absl::Status DenyContains(const SchemaDocument& document, const SchemaJson& schema, Branches* branches) {
  QUIRE_ASSIGN_OR_RETURN(Shape::Contains contains, ContainsOf(document, schema));
  if (contains.max != kUnbounded) {
    const Shape::Contains more{0, contains.item, contains.max + 1, kUnbounded, &schema};
    AddBranch(branches, [more](Shape* shape) { shape->contains.push_back(more); });
  }
  if (contains.min > 0) {
    const Shape::Contains fewer{0, contains.item, 0, contains.min - 1, &schema};
    AddBranch(branches, [fewer](Shape* shape) { shape->contains.push_back(fewer); });
  }
  return absl::OkStatus();
}

absl::Status DenyItems(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                       Branches* branches) {
  QUIRE_RETURN_IF_ERROR(CheckItems(document, schema, keyword));
  if (PrefixOf(schema) == &schema[keyword]) {
    for (size_t i = 0; i < schema[keyword].size(); ++i) {
      AddBranch(branches, [i, item = &schema[keyword][i]](Shape* shape) {
        shape->min_items = std::max(shape->min_items, static_cast<int>(i) + 1);
        AddDemand({item, /*is_negated=*/true}, &ItemAt(i, shape));
      });
    }
  } else if (const SchemaJson* rest = RestOf(schema, keyword)) {
    const Shape::Contains wrong{NumPrefix(schema), {rest, /*is_negated=*/true}, 1, kUnbounded, &schema};
    AddBranch(branches, [wrong](Shape* shape) { shape->contains.push_back(wrong); });
  }
  return absl::OkStatus();
}

absl::Status DenyArray(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                       Branches* branches) {
  if (keyword == "unevaluatedItems") {
    return AcceptsAll(schema[keyword]) ? absl::OkStatus() : CannotBeDenied(document, schema, keyword);
  }
  if (keyword == "uniqueItems") {
    QUIRE_ASSIGN_OR_RETURN(const bool is_unique, FlagOf(document, schema, keyword));
    return is_unique ? CannotBeDenied(document, schema, keyword) : absl::OkStatus();
  }
  if (keyword == "contains") return DenyContains(document, schema, branches);
  if (keyword != "minItems" && keyword != "maxItems") return DenyItems(document, schema, keyword, branches);
  QUIRE_ASSIGN_OR_RETURN(const int count, CountOf(document, schema, keyword));
  if (keyword == "maxItems") {
    if (count >= kMaxCount) return absl::OkStatus();
    AddBranch(branches, [count](Shape* shape) { shape->min_items = std::max(shape->min_items, count + 1); });
  } else if (count > 0) {
    AddBranch(branches, [count](Shape* shape) { AtMost(count - 1, &shape->max_items); });
  }
  return absl::OkStatus();
}

absl::Status DenyDependencies(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                              Branches* branches) {
  QUIRE_RETURN_IF_ERROR(CheckMap(document, schema, keyword));
  for (const auto& [name, value] : schema[keyword].items()) {
    if (keyword == "dependentSchemas" || (keyword == "dependencies" && !value.is_array())) {
      branches->push_back([name = name, &value = value](Alternative* to) {
        to->shape.PropertyOf(name).is_required = true;
        to->pending.push_back({&value, /*is_negated=*/true});
      });
      continue;
    }
    QUIRE_RETURN_IF_ERROR(CheckNames(document, schema, keyword, value));
    for (const SchemaJson& other : value) {
      AddBranch(branches, [name = name, other = other.get<std::string>()](Shape* shape) {
        shape->PropertyOf(name).is_required = true;
        shape->PropertyOf(other).is_forbidden = true;
      });
    }
  }
  return absl::OkStatus();
}

absl::Status DenyObject(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                        Branches* branches) {
  if (keyword == "properties") {
    QUIRE_RETURN_IF_ERROR(CheckMap(document, schema, keyword));
    for (const auto& [name, value] : schema[keyword].items()) {
      if (AcceptsAll(value)) continue;
      AddBranch(branches, [name = name, &value = value](Shape* shape) {
        shape->PropertyOf(name).is_required = true;
        AddDemand({&value, /*is_negated=*/true}, &shape->PropertyOf(name).value);
      });
    }
  } else if (keyword == "required") {
    QUIRE_RETURN_IF_ERROR(CheckNames(document, schema, keyword, schema[keyword]));
    for (const SchemaJson& name : schema[keyword]) {
      AddBranch(branches,
                [name = name.get<std::string>()](Shape* shape) { shape->PropertyOf(name).is_forbidden = true; });
    }
  } else if (keyword == "additionalProperties") {
    if (AcceptsAll(schema[keyword])) return absl::OkStatus();
    if (schema.contains("patternProperties")) return CannotBeDenied(document, schema, keyword);
    AddBranch(branches, [&schema](Shape* shape) { shape->extras.push_back(&schema); });
  } else if (keyword == "unevaluatedProperties" || keyword == "propertyNames") {
    if (!AcceptsAll(schema[keyword])) return CannotBeDenied(document, schema, keyword);
  } else if (keyword == "patternProperties") {
    QUIRE_RETURN_IF_ERROR(CheckMap(document, schema, keyword));
    for (const auto& [pattern, value] : schema[keyword].items()) {
      if (!AcceptsAll(value)) return CannotBeDenied(document, schema, keyword);
    }
  } else if (keyword == "minProperties" || keyword == "maxProperties") {
    QUIRE_ASSIGN_OR_RETURN(const int count, CountOf(document, schema, keyword));
    if (keyword == "maxProperties") {
      if (count >= kMaxCount) return absl::OkStatus();
      AddBranch(branches,
                [count](Shape* shape) { shape->min_properties = std::max(shape->min_properties, count + 1); });
    } else if (count > 0) {
      AddBranch(branches, [count](Shape* shape) { AtMost(count - 1, &shape->max_properties); });
    }
  } else {
    return DenyDependencies(document, schema, keyword, branches);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AssertFacet(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                         int scope, Alternative* to) {
  switch (to->shape.type) {
    case ValueType::kNumber:
      return AssertNumber(document, schema, keyword, &to->shape);
    case ValueType::kString:
      return AssertString(document, schema, keyword, &to->shape);
    case ValueType::kArray:
      return AssertArray(document, schema, keyword, scope, to);
    case ValueType::kObject:
      return AssertObject(document, schema, keyword, scope, to);
    case ValueType::kNull:
    case ValueType::kBoolean:
      break;
  }
  return absl::OkStatus();
}

absl::Status DenyFacet(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                       Branches* branches) {
  switch (*TypeOfKeyword(keyword)) {
    case ValueType::kNumber:
      return DenyNumber(document, schema, keyword, branches);
    case ValueType::kString:
      return DenyString(document, schema, keyword, branches);
    case ValueType::kArray:
      return DenyArray(document, schema, keyword, branches);
    case ValueType::kObject:
      return DenyObject(document, schema, keyword, branches);
    case ValueType::kNull:
    case ValueType::kBoolean:
      break;
  }
  return absl::OkStatus();
}

bool CanHold(const SchemaDocument& document, const Shape& shape) {
  const auto is_empty = [](int min, int max) { return max != kUnbounded && max < min; };
  if (is_empty(shape.min_length, shape.max_length) || is_empty(shape.min_items, shape.max_items)) return false;
  if (is_empty(shape.min_properties, shape.max_properties)) return false;
  return std::none_of(shape.properties.begin(), shape.properties.end(), [&](const Shape::Property& property) {
    return property.is_required && (property.is_forbidden || LacksConstants(document, property.value));
  });
}

bool IsOpen(const Shape& shape) {
  const auto is_false = [](const Shape::Rest& rest) { return *rest.value == false; };
  if (std::any_of(shape.rests.begin(), shape.rests.end(), is_false)) return false;
  if (!shape.rests.empty()) return true;
  // Tools without arguments have "properties": {}. If minProperties asks for some, they can only be others.
  if (shape.has_properties && shape.min_properties == 0) return false;
  return shape.patterns.empty() && std::none_of(shape.properties.begin(), shape.properties.end(),
                                                [](const Shape::Property& property) { return property.is_named; });
}

bool IsWritten(const Shape& shape) {
  const bool is_implied = (shape.implied >> static_cast<int>(shape.type) & 1) != 0;
  if (!shape.has_type && std::popcount(shape.implied) == 1 && !is_implied) return false;
  if (shape.type != ValueType::kObject || IsOpen(shape)) return true;
  int num_possible = 0;
  for (const Shape::Property& property : shape.properties) {
    const bool may_come = property.is_named || property.is_allowed;
    if (property.is_required && !may_come) return false;
    num_possible += may_come && !property.is_forbidden;
  }
  return !shape.patterns.empty() || num_possible >= shape.min_properties;
}

void AddDemand(const Demand& demand, Goal* goal) {
  if (std::find(goal->begin(), goal->end(), demand) == goal->end()) goal->push_back(demand);
}

Shape::Property& Shape::PropertyOf(const std::string& name) {
  const auto [entry, is_new] = property_indices.try_emplace(name, properties.size());
  if (is_new) properties.push_back({.name = name});
  return properties[entry->second];
}

}  // namespace quire::grammar
