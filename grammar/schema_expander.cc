// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_expander.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "grammar/schema_facets.h"
#include "grammar/schema_values.h"

namespace quire::grammar {
namespace {

constexpr int64_t kMaxWork = 1'000'000;

Alternative::Branch Requiring(std::vector<Demand> demands) {
  return [demands = std::move(demands)](Alternative* to) {
    to->pending.insert(to->pending.end(), demands.begin(), demands.end());
  };
}

void NoteImpliedType(const SchemaJson& schema, Shape* shape) {
  if (schema.contains("type")) return;
  for (const auto& [keyword, value] : schema.items()) {
    if (const auto type = TypeOfKeyword(keyword)) shape->implied |= static_cast<uint8_t>(1 << static_cast<int>(*type));
  }
}

std::vector<const SchemaJson*> ConstantsOf(const SchemaJson& schema, const std::string& keyword) {
  if (keyword == "const") return {&schema["const"]};
  std::vector<const SchemaJson*> values;
  for (const SchemaJson& value : schema["enum"]) values.push_back(&value);
  return values;
}

// What it takes to copy an alternative.
int64_t SizeOf(const Alternative& alternative) {
  const Shape& shape = alternative.shape;
  return static_cast<int64_t>(10 + 2 * shape.properties.size() + shape.prefix.size() + alternative.met.size() +
                              alternative.choices.size() + shape.texts.size() + shape.excluded.size());
}

// The schema of one array or object alone.
SchemaJson SchemaOfConstant(const SchemaJson& value) {
  if (value.is_array()) {
    SchemaJson schema = {{"maxItems", value.size()}, {"minItems", value.size()}};
    for (const SchemaJson& item : value) schema["prefixItems"].push_back(SchemaJson::object({{"const", item}}));
    return schema;
  }
  SchemaJson schema = {{"properties", SchemaJson::object()}, {"additionalProperties", false}};
  schema["required"] = SchemaJson::array();
  for (const auto& [name, member] : value.items()) {
    schema["properties"][name] = SchemaJson::object({{"const", member}});
    schema["required"].push_back(name);
  }
  return schema;
}

}  // namespace

absl::StatusOr<std::vector<Shape>> SchemaExpander::Expand(ValueType type, const Goal& goal) {
  std::vector<Shape> shapes;
  std::vector<Alternative> waiting = {Alternative(type)};
  waiting.back().pending = goal;
  while (!waiting.empty()) {
    Alternative at = std::move(waiting.back());
    waiting.pop_back();
    for (size_t i = 0; i < at.pending.size() && !at.is_dead; ++i) {
      QUIRE_RETURN_IF_ERROR(Meet(Demand(at.pending[i]), &at));
    }
    at.pending.clear();
    if (at.is_dead || !CanHold(document_, at.shape)) continue;
    if (at.choices.empty()) CloseScopes(&at);
    if (at.choices.empty() && !at.shape.extras.empty()) {
      const SchemaJson& extra = *at.shape.extras.back();
      at.shape.extras.pop_back();
      QUIRE_ASSIGN_OR_RETURN(Branches branches, BranchesOfExtra(extra, &at));
      at.choices.push_back(std::move(branches));
    }
    if (at.choices.empty()) {
      shapes.push_back(std::move(at.shape));
      continue;
    }
    work_ += static_cast<int64_t>(at.choices.front().size()) * SizeOf(at);
    if (static_cast<int>(shapes.size() + waiting.size()) > kMaxShapes || work_ > kMaxWork) {
      return SchemaError(document_, *goal.front().schema,
                         "the keywords \"anyOf\", \"oneOf\", \"not\", \"if\" and those ",
                         "of dependencies come to more than ", kMaxShapes, " cases together, or to more than ",
                         kMaxWork, " steps in the whole schema");
    }
    const Branches branches = std::move(at.choices.front());
    at.choices.erase(at.choices.begin());
    // The first branch is looked at first, so that shapes have the order of the document.
    for (size_t i = branches.size(); i-- > 0;) {
      waiting.push_back(at);
      branches[i](&waiting.back());
    }
  }
  return shapes;
}

absl::Status SchemaExpander::Meet(const Demand& demand, Alternative* to) {
  if (!to->met.insert(demand).second) return absl::OkStatus();
  const SchemaJson& schema = *demand.schema;
  QUIRE_RETURN_IF_ERROR(CheckKeywords(document_, schema));
  if (!schema.is_boolean()) return demand.is_negated ? Deny(schema, to) : Assert(schema, demand.scope, to);
  if (schema.get<bool>() == demand.is_negated) to->is_dead = true;
  return absl::OkStatus();
}

absl::Status SchemaExpander::Assert(const SchemaJson& schema, int scope, Alternative* to) {
  if (schema.contains("$ref") && document_.ignores_siblings_of_ref()) return AssertJoined(schema, "$ref", scope, to);
  NoteImpliedType(schema, &to->shape);
  if (schema.contains("type")) {
    QUIRE_ASSIGN_OR_RETURN(const TypeSet types, TypesOf(document_, schema));
    to->shape.has_type = true;
    if (!types.Has(to->shape.type)) {
      to->is_dead = true;
      return absl::OkStatus();
    }
    if (types.has_integers_only) to->shape.number.is_integer = to->shape.is_constrained = true;
  }
  const bool is_array = to->shape.type == ValueType::kArray && schema.contains("unevaluatedItems");
  const bool is_object = to->shape.type == ValueType::kObject && schema.contains("unevaluatedProperties");
  if (is_array || is_object) {
    to->scopes.push_back({&schema, scope});
    scope = static_cast<int>(to->scopes.size()) - 1;
  }
  for (const auto& [keyword, value] : schema.items()) {
    const std::optional<ValueType> type = TypeOfKeyword(keyword);
    if (!type.has_value()) {
      QUIRE_RETURN_IF_ERROR(AssertJoined(schema, keyword, scope, to));
    } else if (*type == to->shape.type) {
      to->shape.is_constrained = true;
      QUIRE_RETURN_IF_ERROR(AssertFacet(document_, schema, keyword, scope, to));
    }
  }
  return absl::OkStatus();
}

// Applies unevaluatedItems and unevaluatedProperties to what the parts of their schemas have left.
void SchemaExpander::CloseScopes(Alternative* to) {
  for (size_t i = to->scopes.size(); i-- > 1;) {
    const Alternative::Scope& scope = to->scopes[i];
    if (to->shape.type == ValueType::kArray && !scope.has_all_items) {
      const SchemaJson* item = &(*scope.schema)["unevaluatedItems"];
      if (!scope.contained.empty()) {
        std::vector<const SchemaJson*> one_of = scope.contained;
        one_of.push_back(item);
        const SchemaJson*& made = schemas_of_items_[one_of];
        if (made == nullptr) {
          SchemaJson any = {{"anyOf", SchemaJson::array()}};
          for (const SchemaJson* schema : one_of) any["anyOf"].push_back(*schema);
          made = &document_.Make(std::move(any), *item);
        }
        item = made;
      }
      to->shape.items.push_back({scope.num_items, {item}});
    }
    if (to->shape.type == ValueType::kObject && !scope.has_all_properties) {
      to->shape.rests.push_back(scope.properties);
      to->shape.rests.back().value = &(*scope.schema)["unevaluatedProperties"];
    }
  }
  to->scopes.resize(1, {nullptr, 0});
}

absl::Status SchemaExpander::AssertJoined(const SchemaJson& schema, const std::string& keyword, int scope,
                                          Alternative* to) {
  if (keyword == "enum" || keyword == "const") return AssertConstants(schema, keyword, to);
  if (keyword == "$ref" || keyword == "$dynamicRef") {
    QUIRE_ASSIGN_OR_RETURN(const SchemaJson* target, document_.Resolve(schema, keyword));
    to->pending.push_back({target, /*is_negated=*/false, scope});
    return absl::OkStatus();
  }
  if (keyword == "not") {
    to->pending.push_back({&schema["not"], /*is_negated=*/true});
    return absl::OkStatus();
  }
  if (keyword == "if") {
    std::vector<Demand> fits = {{&schema["if"], /*is_negated=*/false, scope}},
                        breaks = {{&schema["if"], /*is_negated=*/true}};
    if (schema.contains("then")) fits.push_back({&schema["then"], /*is_negated=*/false, scope});
    if (schema.contains("else")) breaks.push_back({&schema["else"], /*is_negated=*/false, scope});
    if (fits.size() + breaks.size() > 2 || scope > 0) to->choices.push_back({Requiring(fits), Requiring(breaks)});
    return absl::OkStatus();
  }
  if (keyword != "allOf" && keyword != "anyOf" && keyword != "oneOf") return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(CheckList(document_, schema, keyword));
  if (keyword == "oneOf") return AssertOneOf(schema, scope, to);
  if (keyword == "anyOf") return AssertAnyOf(schema, scope, to);
  for (const SchemaJson& member : schema[keyword]) to->pending.push_back({&member, /*is_negated=*/false, scope});
  return absl::OkStatus();
}

// In a scope, all schemas that fit count, so what fits one of them must not fit those before it.
absl::Status SchemaExpander::AssertAnyOf(const SchemaJson& schema, int scope, Alternative* to) {
  const SchemaJson& members = schema["anyOf"];
  Branches branches;
  for (size_t i = 0; i < members.size(); ++i) {
    std::vector<Demand> demands = {{&members[i], /*is_negated=*/false, scope}};
    for (size_t k = 0; k < i && scope > 0; ++k) demands.push_back({&members[k], /*is_negated=*/true});
    branches.push_back([demands, &members, i, scope](Alternative* in) {
      in->pending.insert(in->pending.end(), demands.begin(), demands.end());
      for (size_t k = i + 1; k < members.size() && scope > 0; ++k) {
        in->choices.push_back(
            {Requiring({{&members[k], /*is_negated=*/false, scope}}), Requiring({{&members[k], /*is_negated=*/true}})});
      }
    });
  }
  to->choices.push_back(std::move(branches));
  return absl::OkStatus();
}

// What fits one schema must not fit the others. That needs no demand where two schemas are disjoint anyway.
absl::Status SchemaExpander::AssertOneOf(const SchemaJson& schema, int scope, Alternative* to) {
  const SchemaJson& members = schema["oneOf"];
  if (members.size() > kMaxOneOf) {
    return KeywordError(document_, schema, "oneOf", ", it has ", members.size(), " schemas, at most ", kMaxOneOf,
                        " are supported");
  }
  work_ += static_cast<int64_t>(members.size() * members.size());
  Branches branches;
  for (size_t i = 0; i < members.size(); ++i) {
    std::vector<Demand> demands = {{&members[i], /*is_negated=*/false, scope}};
    for (size_t k = 0; k < members.size(); ++k) {
      if (k == i || AreDisjoint(document_, members[i], members[k])) continue;
      demands.push_back({&members[k], /*is_negated=*/true});
    }
    branches.push_back(Requiring(std::move(demands)));
  }
  to->choices.push_back(std::move(branches));
  return absl::OkStatus();
}

absl::Status SchemaExpander::AssertConstants(const SchemaJson& schema, const std::string& keyword, Alternative* to) {
  if (keyword == "enum" && !schema["enum"].is_array()) {
    return KeywordError(document_, schema, keyword, ", it must be an array");
  }
  Shape& shape = to->shape;
  shape.has_type = shape.is_constrained = true;
  const std::vector<const SchemaJson*> listed = ConstantsOf(schema, keyword);
  if (shape.constants.has_value()) work_ += static_cast<int64_t>(listed.size() * shape.constants->size());
  if (work_ > kMaxWork) return KeywordError(document_, schema, keyword, ", and too many constants are joined with it");
  const auto is_listed = [&](const SchemaJson* value) {
    return std::any_of(listed.begin(), listed.end(), [&](const SchemaJson* one) { return AreEqual(*value, *one); });
  };
  std::vector<const SchemaJson*> values;
  for (const SchemaJson* value : shape.constants.has_value() ? *shape.constants : listed) {
    if (TypeOf(*value) != shape.type) continue;
    if (!shape.constants.has_value() || is_listed(value)) values.push_back(value);
  }
  if (values.empty()) to->is_dead = true;
  shape.constants = std::move(values);
  return absl::OkStatus();
}

absl::Status SchemaExpander::Deny(const SchemaJson& schema, Alternative* to) {
  Branches branches;
  const bool has_reference_only = schema.contains("$ref") && document_.ignores_siblings_of_ref();
  if (schema.contains("type") && !has_reference_only) {
    QUIRE_ASSIGN_OR_RETURN(const TypeSet types, TypesOf(document_, schema));
    if (!types.Has(to->shape.type)) return absl::OkStatus();
    if (to->shape.type == ValueType::kNumber && types.has_integers_only) {
      branches.push_back([](Alternative* in) {
        in->shape.is_constrained = true;
        in->shape.number.no_multiples_of.push_back(*Decimal::Of("1", 1));
      });
    }
  }
  for (const auto& [keyword, value] : schema.items()) {
    if (has_reference_only && keyword != "$ref") continue;
    const std::optional<ValueType> type = TypeOfKeyword(keyword);
    if (!type.has_value()) {
      QUIRE_RETURN_IF_ERROR(DenyJoined(schema, keyword, *to, &branches));
    } else if (*type == to->shape.type) {
      QUIRE_RETURN_IF_ERROR(DenyFacet(document_, schema, keyword, &branches));
    }
  }
  if (branches.empty()) to->is_dead = true;
  to->choices.push_back(std::move(branches));
  return absl::OkStatus();
}

absl::Status SchemaExpander::DenyJoined(const SchemaJson& schema, const std::string& keyword, const Alternative& to,
                                        Branches* branches) {
  constexpr bool kNegated = true;
  if (keyword == "enum" || keyword == "const") return DenyConstants(schema, keyword, to, branches);
  if (keyword == "$ref" || keyword == "$dynamicRef") {
    QUIRE_ASSIGN_OR_RETURN(const SchemaJson* target, document_.Resolve(schema, keyword));
    branches->push_back(Requiring({{target, kNegated}}));
  } else if (keyword == "not") {
    branches->push_back(Requiring({{&schema["not"]}}));
  } else if (keyword == "if") {
    if (schema.contains("then")) branches->push_back(Requiring({{&schema["if"]}, {&schema["then"], kNegated}}));
    if (schema.contains("else")) {
      branches->push_back(Requiring({{&schema["if"], kNegated}, {&schema["else"], kNegated}}));
    }
  }
  if (keyword != "allOf" && keyword != "anyOf" && keyword != "oneOf") return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(CheckList(document_, schema, keyword));
  const SchemaJson& members = schema[keyword];
  std::vector<Demand> none;
  for (const SchemaJson& member : members) none.push_back({&member, kNegated});
  if (keyword != "allOf") {
    branches->push_back(Requiring(none));
  } else {
    for (const Demand& demand : none) branches->push_back(Requiring({demand}));
  }
  for (size_t i = 0; keyword == "oneOf" && i < members.size(); ++i) {
    for (size_t k = 0; k < i; ++k) branches->push_back(Requiring({{&members[k]}, {&members[i]}}));
  }
  return absl::OkStatus();
}

absl::Status SchemaExpander::DenyConstants(const SchemaJson& schema, const std::string& keyword, const Alternative& to,
                                           Branches* branches) {
  if (keyword == "enum" && !schema["enum"].is_array()) {
    return KeywordError(document_, schema, keyword, ", it must be an array");
  }
  std::vector<const SchemaJson*> excluded;
  std::vector<Demand> demands;
  for (const SchemaJson* value : ConstantsOf(schema, keyword)) {
    if (TypeOf(*value) != to.shape.type) continue;
    if (value->is_structured()) {
      const SchemaJson*& made = schemas_of_constants_[value];
      if (made == nullptr) made = &document_.Make(SchemaOfConstant(*value), *value);
      demands.push_back({made, /*is_negated=*/true});
    } else {
      excluded.push_back(value);
    }
  }
  branches->push_back([excluded, demands](Alternative* in) {
    in->shape.is_constrained = in->shape.is_constrained || !excluded.empty();
    in->shape.excluded.insert(in->shape.excluded.end(), excluded.begin(), excluded.end());
    in->pending.insert(in->pending.end(), demands.begin(), demands.end());
  });
  return absl::OkStatus();
}

// The ways in which a property that the schema does not describe fails its additionalProperties.
absl::StatusOr<SchemaExpander::Branches> SchemaExpander::BranchesOfExtra(const SchemaJson& schema, Alternative* to) {
  const SchemaJson& value = schema["additionalProperties"];
  Branches branches;
  for (const Shape::Property& property : to->shape.properties) {
    const bool is_described = schema.contains("properties") && schema["properties"].contains(property.name);
    if (property.is_forbidden || is_described) continue;
    branches.push_back([name = property.name, &value](Alternative* in) {
      Shape::Property& extra = in->shape.PropertyOf(name);
      extra.is_required = true;
      AddDemand({&value, /*is_negated=*/true}, &extra.value);
    });
  }
  if (!IsOpen(to->shape)) return branches;
  return KeywordError(document_, schema, "additionalProperties",
                      ", and to break it with a property that no schema names is not supported: \"not\" and \"oneOf\" ",
                      "need that here");
}

}  // namespace quire::grammar
