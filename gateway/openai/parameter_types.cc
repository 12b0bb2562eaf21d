// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/parameter_types.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/python_literal.h"

namespace quire {
namespace {

// A schema may refer to itself.
constexpr int kMaxVisits = 1000;

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

JsonTypes Types(const Json& schema, const Json& root, int* visits) {
  if (!schema.is_object() || --*visits < 0) return kAnyType;
  const auto find = [&schema](const char* key) {
    const auto member = schema.find(key);
    return member == schema.end() ? nullptr : &*member;
  };
  if (const Json* const constant = find("const")) return TypeOfValue(*constant);
  JsonTypes types = kAnyType;
  if (const Json* const values = find("enum"); values != nullptr && values->is_array()) {
    types = 0;
    for (const Json& value : *values) types |= TypeOfValue(value);
  }
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
    if (const Json* const target = TargetOf(*reference, root)) types &= Types(*target, root, visits);
  }
  for (const char* const key : {"anyOf", "oneOf"}) {
    const Json* const parts = find(key);
    if (parts == nullptr || !parts->is_array() || parts->empty()) continue;
    JsonTypes any = 0;
    for (const Json& part : *parts) any |= Types(part, root, visits);
    types &= any;
  }
  if (const Json* const parts = find("allOf"); parts != nullptr && parts->is_array()) {
    for (const Json& part : *parts) types &= Types(part, root, visits);
  }
  return types == 0 ? kAnyType : types;
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

JsonTypes TypesOf(const Json& schema, const Json& root) {
  int visits = kMaxVisits;
  return Types(schema, root, &visits);
}

const Json* TargetOf(const Json& reference, const Json& root) {
  if (!reference.is_string()) return nullptr;
  const std::string text = reference.get<std::string>();
  if (text.empty() || text[0] != '#') return nullptr;
  try {
    const Json::json_pointer pointer(text.substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

const Json* SchemaWithProperties(const Json& schema) {
  const Json* object = &schema;
  for (int i = 0; object != nullptr && object->is_object() && i < 10; ++i) {
    const auto properties = object->find("properties");
    if (properties != object->end() && properties->is_object()) return object;
    const auto reference = object->find("$ref");
    object = reference == object->end() ? nullptr : TargetOf(*reference, schema);
  }
  return nullptr;
}

ParameterTypes ParameterTypesOf(const Json& schema) {
  ParameterTypes types;
  const Json* const object = SchemaWithProperties(schema);
  if (object == nullptr) return types;
  for (const auto& [name, property] : (*object)["properties"].items()) types[name] = TypesOf(property, schema);
  return types;
}

std::map<std::string, ParameterTypes> ParametersOfTools(const Json& tools) {
  std::map<std::string, ParameterTypes> all;
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    const auto parameters = function.find("parameters");
    if (parameters == function.end()) continue;
    all[function["name"].get<std::string>()] = ParameterTypesOf(*parameters);
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
