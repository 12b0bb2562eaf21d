// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "grammar/json_schema.h"

namespace quire::grammar {
namespace {

constexpr int kMaxReferences = 16;

const std::set<std::string, std::less<>>& Annotations() {
  static const auto* names = new std::set<std::string, std::less<>>{
      "$comment", "title",     "description",     "default",          "examples",      "deprecated",
      "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema", "$schema",
      "$id",      "$anchor",   "$defs",           "definitions",      "discriminator",
  };
  return *names;
}

// The type whose values each keyword is for.
const std::map<std::string, std::string, std::less<>>& Typed() {
  static const auto* types = new std::map<std::string, std::string, std::less<>>{
      {"properties", "object"},    {"required", "object"},         {"additionalProperties", "object"},
      {"minProperties", "object"}, {"maxProperties", "object"},    {"items", "array"},
      {"prefixItems", "array"},    {"minItems", "array"},          {"maxItems", "array"},
      {"uniqueItems", "array"},    {"minLength", "string"},        {"maxLength", "string"},
      {"pattern", "string"},       {"format", "string"},           {"minimum", "number"},
      {"maximum", "number"},       {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"},
  };
  return *types;
}

constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "object", "array",
                                                    "number", "string",  "integer"};
constexpr char kTypeNames[] = "null, boolean, object, array, number, string or integer";

bool IsSupported(std::string_view keyword) {
  return keyword == "type" || keyword == "enum" || keyword == "const" || keyword == "anyOf" || keyword == "oneOf" ||
         keyword == "allOf" || keyword == "$ref" || Typed().contains(keyword) || IsAnnotation(keyword);
}

// A schema of another dialect may give other keywords or another meaning.
bool IsKnownDialect(const SchemaJson& value) {
  if (!value.is_string()) return false;
  std::string_view name = value.get_ref<const std::string&>();
  for (const std::string_view prefix : {"https://", "http://"}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  if (name.ends_with("#")) name.remove_suffix(1);
  return name == "json-schema.org/draft/2020-12/schema" || name == "json-schema.org/draft/2019-09/schema" ||
         name == "json-schema.org/draft-07/schema" || name == "json-schema.org/draft-06/schema" ||
         name == "json-schema.org/schema";
}

std::string Decoded(std::string_view part) {
  std::string bytes;
  for (size_t i = 0; i < part.size(); ++i) {
    uint32_t code = 0;
    if (part[i] == '%' && i + 2 < part.size() && absl::SimpleHexAtoi(std::string(part.substr(i + 1, 2)), &code)) {
      bytes += static_cast<char>(code);
      i += 2;
    } else {
      bytes += part[i];
    }
  }
  std::string key;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '~' && i + 1 < bytes.size()) {
      key += bytes[++i] == '1' ? '/' : '~';
    } else {
      key += bytes[i];
    }
  }
  return key;
}

// Follows references to a schema that is none.
const SchemaJson* Target(const SchemaJson& root, const SchemaJson* schema) {
  for (int i = 0; i < kMaxReferences && schema->is_object() && schema->contains("$ref"); ++i) {
    const absl::StatusOr<Referenced> referenced = Resolve(root, *schema, SchemaPlace(*schema, ""));
    if (!referenced.ok()) return schema;
    schema = referenced->schema;
  }
  return schema;
}

// The values of enum or const, or nothing.
std::optional<std::vector<SchemaJson>> Constants(const SchemaJson& schema) {
  if (!schema.is_object()) return std::nullopt;
  if (schema.contains("const")) return std::vector<SchemaJson>{schema["const"]};
  if (schema.contains("enum") && schema["enum"].is_array()) return schema["enum"].get<std::vector<SchemaJson>>();
  return std::nullopt;
}

// The types of values that a schema can accept, with "number" for integers, as far as its own keywords tell.
std::set<std::string> AcceptedTypes(const SchemaJson& schema) {
  std::set<std::string> types;
  const auto add = [&](const std::string& type) { types.insert(type == "integer" ? "number" : type); };
  if (const auto constants = Constants(schema)) {
    for (const SchemaJson& value : *constants) add(TypeOfValue(value));
  } else if (schema.is_object() && schema.contains("type")) {
    for (const SchemaJson& type : schema["type"].is_array() ? schema["type"] : SchemaJson::array({schema["type"]})) {
      if (type.is_string()) add(type.get<std::string>());
    }
  } else {
    for (const std::string_view type : kTypes) add(std::string(type));
  }
  return types;
}

bool HaveCommon(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& type) { return b.contains(type); });
}

bool HaveCommon(const std::vector<SchemaJson>& a, const std::vector<SchemaJson>& b) {
  return std::any_of(a.begin(), a.end(), [&](const SchemaJson& value) {
    return std::any_of(b.begin(), b.end(), [&](const SchemaJson& other) { return AreEqual(value, other); });
  });
}

// The value of a number that is an integer of at most about 66 bits.
std::optional<absl::int128> IntegerOf(const SchemaJson& number) {
  if (number.is_number_unsigned()) return number.get<uint64_t>();
  if (number.is_number_integer()) return number.get<int64_t>();
  const double value = number.get<double>();
  if (std::trunc(value) != value || std::abs(value) > 1e20) return std::nullopt;
  return static_cast<absl::int128>(value);
}

bool Requires(const SchemaJson& schema, const std::string& name) {
  return schema.contains("required") && schema["required"].is_array() &&
         std::find(schema["required"].begin(), schema["required"].end(), name) != schema["required"].end();
}

bool HasObject(const SchemaJson& schema, const char* keyword) {
  return schema.is_object() && schema.contains(keyword) && schema[keyword].is_object();
}

}  // namespace

bool AreEqual(const SchemaJson& a, const SchemaJson& b) {
  if (a.is_number() && b.is_number()) {
    const std::optional<absl::int128> first = IntegerOf(a);
    const std::optional<absl::int128> second = IntegerOf(b);
    return first.has_value() || second.has_value() ? first == second : a.get<double>() == b.get<double>();
  }
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), AreEqual);
  if (!a.is_object()) return a == b;
  const auto members = a.items();
  return std::all_of(members.begin(), members.end(), [&](const auto& member) {
    const auto other = b.find(member.key());
    return other != b.end() && AreEqual(member.value(), *other);
  });
}

bool IsAnnotation(std::string_view keyword) {
  return Annotations().contains(keyword) || keyword.starts_with("x-");
}

absl::Status NoSchemaError(const SchemaPlace& place, const SchemaJson& value) {
  return SchemaError(place, "a schema must be an object or a boolean, and this is ", Shown(value));
}

absl::Status CheckKeywords(const SchemaJson& schema, const SchemaPlace& place, bool is_root) {
  if (schema.is_boolean()) return absl::OkStatus();
  if (!schema.is_object()) return NoSchemaError(place, schema);
  for (const auto& [keyword, value] : schema.items()) {
    if (!IsSupported(keyword)) {
      return SchemaError(place.Child(keyword), "the keyword \"", keyword, "\" is not supported; its value is ",
                         Shown(value));
    }
    if (keyword == "$id" && !is_root) {
      return KeywordError(place, schema, keyword, ", and this keyword is supported at the root only");
    }
    if (keyword == "$schema" && !IsKnownDialect(value)) {
      return KeywordError(place, schema, keyword, ", which names a dialect that is not supported");
    }
    if (keyword == "uniqueItems" && value != false) {
      return KeywordError(place, schema, keyword, ", only false is supported");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::set<std::string>> TypesOf(const SchemaJson& schema, const SchemaPlace& place) {
  std::set<std::string> types;
  if (!schema.contains("type")) {
    for (const std::string& keyword : TypedKeywords(schema)) types.insert(Typed().find(keyword)->second);
    if (types.size() == 1) return types;
    return std::set<std::string>{"null", "boolean", "object", "array", "number", "string"};
  }
  const SchemaJson& type = schema["type"];
  const SchemaJson list = type.is_array() ? type : SchemaJson::array({type});
  for (const SchemaJson& entry : list) {
    if (!entry.is_string() || std::find(kTypes.begin(), kTypes.end(), entry.get<std::string>()) == kTypes.end()) {
      return KeywordError(place, schema, "type", ", it must name types of JSON: ", kTypeNames);
    }
    types.insert(entry.get<std::string>());
  }
  if (types.contains("number")) types.erase("integer");
  return types;
}

std::string TypeOfValue(const SchemaJson& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    return number == static_cast<double>(static_cast<int64_t>(std::clamp(number, -1e18, 1e18))) ? "integer" : "number";
  }
  if (value.is_number()) return "integer";
  return value.type_name();
}

std::set<std::string> TypedKeywords(const SchemaJson& schema) {
  std::set<std::string> keywords;
  for (const auto& [keyword, value] : schema.items()) {
    if (Typed().contains(keyword)) keywords.insert(keyword);
  }
  return keywords;
}

absl::StatusOr<std::optional<int>> CountOf(const SchemaJson& schema, const char* keyword, const SchemaPlace& place) {
  if (!schema.contains(keyword)) return std::optional<int>();
  const SchemaJson& value = schema[keyword];
  const bool is_count = value.is_number() && TypeOfValue(value) == "integer" && value.get<double>() >= 0;
  if (!is_count) return KeywordError(place, schema, keyword, ", it must be a whole number of at least 0");
  if (value.get<double>() > kMaxCount) {
    return KeywordError(place, schema, keyword, ", at most ", kMaxCount, " is supported");
  }
  return std::optional<int>(static_cast<int>(value.get<double>()));
}

absl::StatusOr<Referenced> Resolve(const SchemaJson& root, const SchemaJson& schema, const SchemaPlace& place) {
  const SchemaJson& reference = schema["$ref"];
  const auto refuse = [&](std::string_view why) { return KeywordError(place, schema, "$ref", ", ", MessagePart(why)); };
  if (!reference.is_string()) return refuse("it must be a string");
  const std::string& text = reference.get_ref<const std::string&>();
  if (text != "#" && !absl::StartsWith(text, "#/")) return refuse("only # and #/... are supported");
  const SchemaJson* value = &root;
  std::string pointer;
  if (text == "#") return Referenced{value, SchemaPlace(*value, pointer)};
  const std::vector<std::string> parts = absl::StrSplit(text.substr(2), '/');
  for (const std::string& part : parts) {
    const std::string key = Decoded(part);
    size_t index = 0;
    if (value->is_object() && value->contains(key)) {
      value = &(*value)[key];
    } else if (value->is_array() && absl::SimpleAtoi(key, &index) && index < value->size()) {
      value = &(*value)[index];
    } else {
      return refuse("which the document does not have");
    }
    pointer += PointerPart(key);
    if (value->is_object() && value->contains("$id")) return refuse("which is in a schema with an $id");
  }
  return Referenced{value, SchemaPlace(*value, pointer)};
}

bool AreDisjoint(const SchemaJson& root, const SchemaJson& a, const SchemaJson& b) {
  const SchemaJson& first = *Target(root, &a);
  const SchemaJson& second = *Target(root, &b);
  if (first == false || second == false) return true;
  if (!HaveCommon(AcceptedTypes(first), AcceptedTypes(second))) return true;
  const auto constants = Constants(first);
  const auto others = Constants(second);
  if (constants.has_value() && others.has_value()) return !HaveCommon(*constants, *others);
  if (!HasObject(first, "properties") || !HasObject(second, "properties")) return false;
  if (AcceptedTypes(first).size() != 1 || AcceptedTypes(second).size() != 1) return false;
  for (const auto& [name, schema] : first["properties"].items()) {
    if (!second["properties"].contains(name) || !Requires(first, name) || !Requires(second, name)) continue;
    const auto mine = Constants(*Target(root, &schema));
    const auto theirs = Constants(*Target(root, &second["properties"][name]));
    if (mine.has_value() && theirs.has_value() && !HaveCommon(*mine, *theirs)) return true;
  }
  return false;
}

}  // namespace quire::grammar
