// SPDX-License-Identifier: Apache-2.0

#include "tests/grammar/schema_check.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>

#include "base/utf8.h"

namespace quire::grammar {
namespace {

using Json = nlohmann::ordered_json;

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
  if (type == "number") return value.is_number();
  return type == value.type_name();
}

size_t NumCharacters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Members may come in another order.
bool AreEqual(const Json& a, const Json& b) {
  return nlohmann::json(a) == nlohmann::json(b);
}

const Json& Target(const Json& root, std::string pointer) {
  pointer.erase(0, 1);
  std::string decoded;
  for (size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '%') {
      decoded += static_cast<char>(std::stoi(pointer.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      decoded += pointer[i];
    }
  }
  return root.at(Json::json_pointer(decoded));
}

size_t NumFitting(const Json& value, const Json& schemas, const Json& root) {
  return static_cast<size_t>(
      std::count_if(schemas.begin(), schemas.end(), [&](const Json& s) { return FitsSchema(value, s, root); }));
}

bool IsMultiple(double value, double step) {
  const double steps = value / step;
  return std::abs(steps - std::round(steps)) < 1e-9 * std::max(1.0, std::abs(steps));
}

bool FitsNumber(double value, const Json& schema) {
  return (!schema.contains("multipleOf") || IsMultiple(value, schema["multipleOf"].get<double>())) &&
         (!schema.contains("minimum") || value >= schema["minimum"].get<double>()) &&
         (!schema.contains("maximum") || value <= schema["maximum"].get<double>()) &&
         (!schema.contains("exclusiveMinimum") || value > schema["exclusiveMinimum"].get<double>()) &&
         (!schema.contains("exclusiveMaximum") || value < schema["exclusiveMaximum"].get<double>());
}

bool FitsString(const std::string& text, const Json& schema) {
  if (schema.contains("pattern") && !std::regex_search(text, std::regex(schema["pattern"].get<std::string>()))) {
    return false;
  }
  const double length = static_cast<double>(NumCharacters(text));
  return (!schema.contains("minLength") || length >= schema["minLength"].get<double>()) &&
         (!schema.contains("maxLength") || length <= schema["maxLength"].get<double>());
}

bool FitsContains(const Json& value, const Json& schema, const Json& root) {
  const auto count = static_cast<double>(std::count_if(
      value.begin(), value.end(), [&](const Json& item) { return FitsSchema(item, schema["contains"], root); }));
  return count >= (schema.contains("minContains") ? schema["minContains"].get<double>() : 1) &&
         (!schema.contains("maxContains") || count <= schema["maxContains"].get<double>());
}

bool AreUnique(const Json& value) {
  for (size_t i = 0; i < value.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (AreEqual(value[i], value[k])) return false;
    }
  }
  return true;
}

bool FitsArray(const Json& value, const Json& schema, const Json& root) {
  if (schema.contains("contains") && !FitsContains(value, schema, root)) return false;
  if (schema.contains("uniqueItems") && schema["uniqueItems"] == true && !AreUnique(value)) return false;
  const size_t num_prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
  for (size_t i = 0; i < value.size(); ++i) {
    if (i < num_prefix) {
      if (!FitsSchema(value[i], schema["prefixItems"][i], root)) return false;
    } else if (schema.contains("items") && !FitsSchema(value[i], schema["items"], root)) {
      return false;
    }
  }
  const double size = static_cast<double>(value.size());
  return (!schema.contains("minItems") || size >= schema["minItems"].get<double>()) &&
         (!schema.contains("maxItems") || size <= schema["maxItems"].get<double>());
}

bool FitsMember(const std::string& name, const Json& member, const Json& schema, const Json& root) {
  if (schema.contains("propertyNames") && !FitsSchema(name, schema["propertyNames"], root)) return false;
  bool is_described = schema.contains("properties") && schema["properties"].contains(name);
  if (is_described && !FitsSchema(member, schema["properties"][name], root)) return false;
  if (schema.contains("patternProperties")) {
    for (const auto& [pattern, rule] : schema["patternProperties"].items()) {
      if (!std::regex_search(name, std::regex(pattern))) continue;
      is_described = true;
      if (!FitsSchema(member, rule, root)) return false;
    }
  }
  return is_described || !schema.contains("additionalProperties") ||
         FitsSchema(member, schema["additionalProperties"], root);
}

bool HasAll(const Json& value, const Json& names) {
  return std::all_of(names.begin(), names.end(),
                     [&](const Json& name) { return value.contains(name.get<std::string>()); });
}

bool FitsDependencies(const Json& value, const Json& schema, const Json& root) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!schema.contains(keyword)) continue;
    for (const auto& [name, rule] : schema[keyword].items()) {
      if (!value.contains(name)) continue;
      if (rule.is_array() ? !HasAll(value, rule) : !FitsSchema(value, rule, root)) return false;
    }
  }
  return true;
}

bool FitsObject(const Json& value, const Json& schema, const Json& root) {
  if (!FitsDependencies(value, schema, root)) return false;
  for (const auto& [name, member] : value.items()) {
    if (!FitsMember(name, member, schema, root)) return false;
  }
  if (schema.contains("required") && !HasAll(value, schema["required"])) return false;
  const double size = static_cast<double>(value.size());
  return (!schema.contains("minProperties") || size >= schema["minProperties"].get<double>()) &&
         (!schema.contains("maxProperties") || size <= schema["maxProperties"].get<double>());
}

}  // namespace

bool FitsSchema(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref") && !FitsSchema(value, Target(root, schema["$ref"]), root)) return false;
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    if (std::none_of(types.begin(), types.end(), [&](const Json& type) { return IsOfType(value, type); })) return false;
  }
  if (schema.contains("const") && !AreEqual(value, schema["const"])) return false;
  if (schema.contains("enum") && std::none_of(schema["enum"].begin(), schema["enum"].end(),
                                              [&](const Json& entry) { return AreEqual(value, entry); })) {
    return false;
  }
  if (schema.contains("allOf") && NumFitting(value, schema["allOf"], root) != schema["allOf"].size()) return false;
  if (schema.contains("anyOf") && NumFitting(value, schema["anyOf"], root) == 0) return false;
  if (schema.contains("oneOf") && NumFitting(value, schema["oneOf"], root) != 1) return false;
  if (schema.contains("not") && FitsSchema(value, schema["not"], root)) return false;
  if (schema.contains("if")) {
    const char* const next = FitsSchema(value, schema["if"], root) ? "then" : "else";
    if (schema.contains(next) && !FitsSchema(value, schema[next], root)) return false;
  }
  if (value.is_number()) return FitsNumber(value.get<double>(), schema);
  if (value.is_string()) return FitsString(value.get<std::string>(), schema);
  if (value.is_array()) return FitsArray(value, schema, root);
  if (value.is_object()) return FitsObject(value, schema, root);
  return true;
}

}  // namespace quire::grammar
