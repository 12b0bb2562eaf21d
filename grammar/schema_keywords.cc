// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "grammar/number_text.h"

namespace quire::grammar {
namespace {

// The most digits before the point of a bound, so that it can be an integer of 64 bits.
constexpr int kMaxBoundDigits = 20;

// The keywords that say which values are accepted, with the type whose values they are for.
const std::map<std::string, std::optional<ValueType>, std::less<>>& Constraints() {
  static const auto* types = [] {
    auto* map = new std::map<std::string, std::optional<ValueType>, std::less<>>;
    const auto add = [map](std::optional<ValueType> type, std::initializer_list<const char*> names) {
      for (const char* name : names) map->emplace(name, type);
    };
    add(std::nullopt,
        {"type", "enum", "const", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"});
    add(ValueType::kNumber, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
    add(ValueType::kString, {"minLength", "maxLength", "pattern", "format"});
    add(ValueType::kArray, {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
                            "maxContains", "additionalItems", "unevaluatedItems"});
    add(ValueType::kObject,
        {"properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties",
         "propertyNames", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"});
    return map;
  }();
  return *types;
}

// Keywords of this and other drafts that would change what is accepted.
const std::set<std::string, std::less<>>& Unsupported() {
  static const auto* names =
      new std::set<std::string, std::less<>>{"$recursiveRef", "divisibleBy", "disallow", "extends"};
  return *names;
}

constexpr std::array<std::string_view, 7> kTypeNames = {"null",  "boolean", "number", "string",
                                                        "array", "object",  "integer"};

// Returns the name of a dialect without what differs between its spellings.
std::string_view DialectOf(const SchemaJson& value) {
  std::string_view name = value.get_ref<const std::string&>();
  for (const std::string_view prefix : {"https://", "http://"}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  if (name.ends_with("#")) name.remove_suffix(1);
  return name;
}

constexpr std::string_view kDraft4 = "json-schema.org/draft-04/schema";

// A schema of another dialect may give other keywords or another meaning.
bool IsKnownDialect(std::string_view name) {
  return name == "json-schema.org/draft/2020-12/schema" || name == "json-schema.org/draft/2019-09/schema" ||
         name == "json-schema.org/draft-07/schema" || name == "json-schema.org/draft-06/schema" || name == kDraft4 ||
         name == "json-schema.org/schema";
}

absl::Status CheckDialect(const SchemaDocument& document, const SchemaJson& schema) {
  const SchemaJson& value = schema["$schema"];
  if (!value.is_string() || !IsKnownDialect(DialectOf(value))) {
    return KeywordError(document, schema, "$schema", ", which names a dialect that is not supported");
  }
  if (DialectOf(value) == kDraft4 && !document.is_of_draft_4()) {
    return KeywordError(document, schema, "$schema", ", which is supported for a whole document only");
  }
  return absl::OkStatus();
}

}  // namespace

ValueType TypeOf(const SchemaJson& value) {
  if (value.is_null()) return ValueType::kNull;
  if (value.is_boolean()) return ValueType::kBoolean;
  if (value.is_number()) return ValueType::kNumber;
  if (value.is_string()) return ValueType::kString;
  return value.is_array() ? ValueType::kArray : ValueType::kObject;
}

bool IsMapOfSchemas(std::string_view keyword) {
  return keyword == "properties" || keyword == "patternProperties" || keyword == "dependentSchemas" ||
         keyword == "dependencies" || keyword == "$defs" || keyword == "definitions";
}

bool HasSchemas(std::string_view keyword) {
  constexpr std::array<std::string_view, 16> kKeywords = {"allOf",
                                                          "anyOf",
                                                          "oneOf",
                                                          "not",
                                                          "if",
                                                          "then",
                                                          "else",
                                                          "items",
                                                          "contains",
                                                          "prefixItems",
                                                          "additionalItems",
                                                          "additionalProperties",
                                                          "propertyNames",
                                                          "unevaluatedItems",
                                                          "unevaluatedProperties",
                                                          "contentSchema"};
  return std::find(kKeywords.begin(), kKeywords.end(), keyword) != kKeywords.end();
}

bool IsAnnotation(std::string_view keyword) {
  return !Constraints().contains(keyword) && !Unsupported().contains(keyword);
}

bool AcceptsAll(const SchemaJson& schema) {
  if (!schema.is_object()) return schema == true;
  const auto keywords = schema.items();
  return std::all_of(keywords.begin(), keywords.end(),
                     [](const auto& entry) { return IsAnnotation(entry.key()) && entry.key() != "nullable"; });
}

std::optional<ValueType> TypeOfKeyword(std::string_view keyword) {
  const auto found = Constraints().find(keyword);
  return found == Constraints().end() ? std::nullopt : found->second;
}

absl::Status CheckKeywords(const SchemaDocument& document, const SchemaJson& schema) {
  if (schema.is_boolean()) return absl::OkStatus();
  if (!schema.is_object()) {
    return SchemaError(document, schema, "a schema must be an object or a boolean, and this is ", Shown(schema));
  }
  for (const auto& [keyword, value] : schema.items()) {
    if (Unsupported().contains(keyword)) {
      return SchemaError(document, value, "the keyword \"", keyword, "\" is not supported; its value is ",
                         Shown(value));
    }
    if (keyword == "$schema") QUIRE_RETURN_IF_ERROR(CheckDialect(document, schema));
    // OpenAPI 3.0 accepts null then, and JSON schemas do not have this keyword.
    if (keyword == "nullable" && value != false) {
      return KeywordError(document, schema, keyword, ", which is no keyword of JSON schemas: write \"type\": [..., ",
                          "\"null\"]");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TypeSet> TypesOf(const SchemaDocument& document, const SchemaJson& schema) {
  const SchemaJson& type = schema["type"];
  TypeSet types;
  bool has_number = false;
  const SchemaJson list = type.is_array() ? type : SchemaJson::array({type});
  for (const SchemaJson& entry : list) {
    const auto name = entry.is_string() ? std::find(kTypeNames.begin(), kTypeNames.end(), entry.get<std::string>())
                                        : kTypeNames.end();
    if (name == kTypeNames.end()) {
      return KeywordError(document, schema, "type", ", it must name types of JSON: null, boolean, object, array, ",
                          "number, string or integer");
    }
    const auto index = static_cast<size_t>(name - kTypeNames.begin());
    has_number |= *name == "number";
    types.Add(index < kValueTypes.size() ? kValueTypes[index] : ValueType::kNumber);
  }
  types.has_integers_only = types.Has(ValueType::kNumber) && !has_number;
  return types;
}

absl::StatusOr<int> CountOf(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword) {
  const SchemaJson& value = schema[keyword];
  const double count = value.is_number() ? value.get<double>() : -1;
  if (count < 0 || count != std::floor(count)) {
    return KeywordError(document, schema, keyword, ", it must be a whole number of at least 0");
  }
  const bool is_limit = keyword == "maxLength" || keyword == "maxItems" || keyword == "maxProperties";
  if (is_limit) return static_cast<int>(std::min<double>(count, kMaxLimit));
  if (count > kMaxCount) return KeywordError(document, schema, keyword, ", at most ", kMaxCount, " is supported");
  return static_cast<int>(count);
}

absl::StatusOr<Decimal> DecimalOf(const SchemaDocument& document, const SchemaJson& schema,
                                  const std::string& keyword) {
  const SchemaJson& value = schema[keyword];
  if (!value.is_number()) return KeywordError(document, schema, keyword, ", it must be a number");
  const std::optional<Decimal> number = Decimal::Of(value.dump(), kMaxBoundDigits);
  // A number beyond 64 bits was rounded when it was read.
  const bool is_exact = !value.is_number_float() || std::abs(value.get<double>()) < 0x1p63;
  if (number.has_value() && is_exact && number->fraction.size() <= kMaxNumberDigits) return *number;
  return KeywordError(document, schema, keyword, ", supported are integers of 64 bits and other numbers below 2^63 ",
                      "with at most ", kMaxNumberDigits, " digits behind the point");
}

absl::StatusOr<std::optional<Bound>> BoundOf(const SchemaDocument& document, const SchemaJson& schema,
                                             const std::string& keyword) {
  const bool is_upper = keyword == "maximum" || keyword == "exclusiveMaximum";
  const bool is_exclusive = keyword == "exclusiveMinimum" || keyword == "exclusiveMaximum";
  const SchemaJson& value = schema[keyword];
  if (is_exclusive && document.is_of_draft_4()) {
    const char* const bound = is_upper ? "maximum" : "minimum";
    if (!value.is_boolean()) {
      return KeywordError(document, schema, keyword, ", it must be a boolean, because \"$schema\" names draft 4");
    }
    if (value == true && !schema.contains(bound)) {
      return KeywordError(document, schema, keyword, ", it needs \"", bound, "\" beside it");
    }
    return std::nullopt;
  }
  if (is_exclusive && value.is_boolean()) {
    return KeywordError(document, schema, keyword, ", it must be a number, unless \"$schema\" names draft 4");
  }
  QUIRE_ASSIGN_OR_RETURN(const Decimal number, DecimalOf(document, schema, keyword));
  const auto flag = schema.find(is_upper ? "exclusiveMaximum" : "exclusiveMinimum");
  const bool has_flag = document.is_of_draft_4() && flag != schema.end() && *flag == true;
  return Bound{number, is_upper, is_exclusive || has_flag};
}

absl::StatusOr<std::string> TextOf(const SchemaDocument& document, const SchemaJson& schema,
                                   const std::string& keyword) {
  if (schema[keyword].is_string()) return schema[keyword].get<std::string>();
  return KeywordError(document, schema, keyword, ", it must be a string");
}

absl::StatusOr<bool> FlagOf(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword) {
  if (schema[keyword].is_boolean()) return schema[keyword].get<bool>();
  return KeywordError(document, schema, keyword, ", it must be true or false");
}

absl::Status CheckList(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword) {
  if (schema[keyword].is_array() && !schema[keyword].empty()) return absl::OkStatus();
  return KeywordError(document, schema, keyword, ", it must be an array of schemas");
}

absl::Status CheckMap(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword) {
  if (schema[keyword].is_object()) return absl::OkStatus();
  return KeywordError(document, schema, keyword, ", it must be an object of schemas");
}

absl::Status CheckNames(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                        const SchemaJson& names) {
  const bool are_names = names.is_array() && std::all_of(names.begin(), names.end(),
                                                         [](const SchemaJson& name) { return name.is_string(); });
  if (are_names) return absl::OkStatus();
  return KeywordError(document, schema, keyword, ", ", &names == &schema[keyword] ? "it" : "each value",
                      " must be an array of strings");
}

}  // namespace quire::grammar
