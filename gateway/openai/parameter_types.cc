// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/parameter_types.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/python_literal.h"

namespace quire {
namespace {

// Parts of one schema, which may refer to itself. The smaller numbers hold when the bounds of all schemas are reached.
constexpr int kMaxVisits = 1000;
constexpr int kMinVisits = 10;
constexpr size_t kMinValues = 100;
constexpr size_t kMembersPerVisit = 16;  // They are searched one after the other.

JsonTypes TypeOfValue(const Json& value) {
  if (value.is_string()) return kStringType;
  if (value.is_number()) return kNumberType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_array()) return kArrayType;
  return value.is_object() ? kObjectType : kNullType;
}

JsonTypes TypeNamed(const Json& name) {
  if (name == "string") return kStringType;
  if (name == "number" || name == "integer") return kNumberType;
  if (name == "boolean") return kBooleanType;
  if (name == "null") return kNullType;
  if (name == "array") return kArrayType;
  return name == "object" ? kObjectType : kAnyType;
}

// Returns the type of a text that is JSON, and 0 if it is none.
JsonTypes TypeOfText(absl::string_view text) {
  if (text.empty() || !Json::accept(text)) return 0;
  switch (text[0]) {
    case '"':
      return kStringType;
    case '{':
      return kObjectType;
    case '[':
      return kArrayType;
    case 'n':
      return kNullType;
    case 't':
    case 'f':
      return kBooleanType;
    default:
      return text[0] == '-' || absl::ascii_isdigit(static_cast<unsigned char>(text[0])) ? kNumberType : 0;
  }
}

}  // namespace

JsonTypes SchemaTypes::Of(const Json& schema, SchemaDocument* document) {
  const int limit = std::clamp(visits_left_, kMinVisits, kMaxVisits);
  int visits = limit;
  const JsonTypes types = Visit(schema, document, &visits);
  visits_left_ = std::max(visits_left_ - (limit - std::max(visits, 0)), 0);
  return types;
}

JsonTypes SchemaTypes::OfEnum(const Json& values) {
  const auto known = enums_.find(&values);
  if (known != enums_.end()) return known->second;
  if (!MayRead(values.size())) return kAnyType;
  JsonTypes types = 0;
  for (const Json& value : values) types |= TypeOfValue(value);
  enums_[&values] = types;
  return types;
}

bool SchemaTypes::MayRead(size_t num_values) {
  if (num_values <= kMinValues) return true;
  if (num_values > values_left_) return false;
  values_left_ -= num_values;
  return true;
}

JsonTypes SchemaTypes::Visit(const Json& schema, SchemaDocument* document, int* visits) {
  if (!schema.is_object()) return kAnyType;
  *visits -= 1 + static_cast<int>(schema.size() / kMembersPerVisit);
  if (*visits < 0) return kAnyType;
  const auto find = [&schema](const char* key) {
    const auto member = schema.find(key);
    return member == schema.end() ? nullptr : &*member;
  };
  if (const Json* const constant = find("const")) return TypeOfValue(*constant);
  JsonTypes types = kAnyType;
  if (const Json* const values = find("enum"); values != nullptr && values->is_array()) types = OfEnum(*values);
  if (const Json* const type = find("type")) {
    JsonTypes named = 0;
    if (type->is_array()) {
      for (const Json& name : *type) named |= TypeNamed(name);
    } else {
      named = TypeNamed(*type);
    }
    const Json* const nullable = find("nullable");
    if (nullable != nullptr && *nullable == true) named |= kNullType;
    types &= named;
  }
  if (const Json* const reference = find("$ref")) {
    if (const Json* const target = document->TargetOf(*reference)) types &= Visit(*target, document, visits);
  }
  for (const char* const key : {"anyOf", "oneOf"}) {
    const Json* const parts = find(key);
    if (parts == nullptr || !parts->is_array() || parts->empty()) continue;
    JsonTypes any = 0;
    for (const Json& part : *parts) {
      any |= Visit(part, document, visits);
      if (any == kAnyType) break;
    }
    types &= any;
  }
  if (const Json* const parts = find("allOf"); parts != nullptr && parts->is_array()) {
    for (const Json& part : *parts) {
      types &= Visit(part, document, visits);
      if (*visits < 0) break;
    }
  }
  return types == 0 ? kAnyType : types;
}

ParameterTypes ParameterTypesOf(SchemaDocument* schema, SchemaTypes* types) {
  ParameterTypes parameters;
  types->NextDocument();
  const Json* const object = schema->SchemaWithProperties();
  if (object == nullptr) return parameters;
  for (const auto& [name, property] : (*object)["properties"].items()) parameters[name] = types->Of(property, schema);
  return parameters;
}

std::map<std::string, ParameterTypes> ParametersOfTools(const Json& tools) {
  std::map<std::string, ParameterTypes> all;
  SchemaTypes types;
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    const auto parameters = function.find("parameters");
    if (parameters == function.end()) continue;
    SchemaDocument schema(*parameters);
    all[function["name"].get<std::string>()] = ParameterTypesOf(&schema, &types);
  }
  return all;
}

std::string TypedValue(absl::string_view text, JsonTypes types) {
  const absl::string_view value = absl::StripAsciiWhitespace(text);
  const JsonTypes others = types & static_cast<JsonTypes>(~kStringType);
  if ((TypeOfText(value) & others) != 0) return std::string(value);
  if (const std::optional<Json> python = ParsePythonLiteral(value);
      python.has_value() && (TypeOfValue(*python) & others) != 0) {
    return Dump(*python);
  }
  std::string json = "\"";
  AppendPartOfString(text, &json);
  return json + '"';
}

void AppendPartOfString(absl::string_view text, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppend(out, "\\u00", absl::string_view(c < 0x10 ? "0" : "1"));
          *out += kHex[c & 15];
        } else {
          *out += c;
        }
    }
  }
}

}  // namespace quire
