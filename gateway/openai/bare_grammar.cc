// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/bare_grammar.h"

#include <algorithm>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/lark_items.h"
#include "gateway/openai/text_pattern.h"

namespace quire {
namespace {

constexpr int64_t kMaxBound = 10'000;  // A guide takes no larger one.
constexpr int kMaxSchemaDepth = 64;    // Of schemas within each other, as in a guide.

const Json* Find(const Json& schema, const char* key) {
  const auto member = schema.is_object() ? schema.find(key) : schema.end();
  return member == schema.end() ? nullptr : &*member;
}

// Returns a bound such as minLength, or `otherwise` without one.
int64_t BoundOf(const Json& schema, const char* key, int64_t otherwise) {
  const Json* const bound = Find(schema, key);
  if (bound == nullptr || !bound->is_number()) return otherwise;
  return static_cast<int64_t>(std::clamp<double>(bound->get<double>(), 0, kMaxBound));
}

// Returns "{1,5}" for a regular expression, or "*".
std::string Repetition(int64_t min, int64_t max) {
  if (min == 0 && max < 0) return "*";
  return absl::StrCat("{", min, ",", max < 0 ? "" : absl::StrCat(max), "}");
}

// The place of each member of an object, by its name.
using Places = absl::flat_hash_map<std::string, size_t>;

Places PlacesOf(const Json* object) {
  Places places;
  if (object == nullptr || !object->is_object()) return places;
  for (const auto& [name, value] : object->items()) places.emplace(name, places.size());
  return places;
}

// Adds the members of another object, or sets them where they are known.
void Update(const Json& other, Places* places, Json* object) {
  // The base class does not look for the name among all others.
  auto& members = static_cast<Json::object_t::Container&>(object->get_ref<Json::object_t&>());
  for (const auto& [name, value] : other.items()) {
    const auto [place, is_new] = places->emplace(name, members.size());
    if (is_new) {
      members.emplace_back(name, value);
    } else {
      members[place->second].second = value;
    }
  }
}

// Returns the schema that has what all parts of allOf say.
Json Merged(const Json& schema, SchemaDocument* document) {
  Json merged = schema;
  merged.erase("allOf");
  Places places = PlacesOf(Find(schema, "properties"));
  for (const Json& part : schema["allOf"]) {
    const Json* const reference = Find(part, "$ref");
    const Json* const target = reference == nullptr ? &part : document->TargetOf(*reference);
    if (target == nullptr || !target->is_object()) continue;
    for (const auto& [key, value] : target->items()) {
      Json& member = merged[key];
      if (key == "properties" && member.is_object() && value.is_object()) {
        Update(value, &places, &member);
      } else if (key == "required" && member.is_array() && value.is_array()) {
        member.insert(member.end(), value.begin(), value.end());
      } else {
        member = value;
        if (key == "properties") places = PlacesOf(&member);
      }
    }
  }
  return merged;
}

std::string InParentheses(absl::string_view items) {
  return absl::StrCat(" (", items.substr(1), ")");
}

}  // namespace

absl::flat_hash_set<absl::string_view> RequiredMembers(const Json& object) {
  absl::flat_hash_set<absl::string_view> names;
  const Json* const required = Find(object, "required");
  if (required == nullptr) return names;
  for (const Json& name : *required) {
    if (name.is_string()) names.insert(name.get_ref<const std::string&>());
  }
  return names;
}

std::string BareGrammar::Root(SchemaDocument* schema) {
  names_.clear();
  return Value(schema->root(), schema);
}

std::string BareGrammar::Value(const Json& schema, SchemaDocument* document) {
  if (!schema.is_object() || num_bytes_ > max_bytes_ || depth_ == kMaxSchemaDepth) return Any();
  ++depth_;
  std::string items = KnownValue(schema, document);
  --depth_;
  return items;
}

std::string BareGrammar::KnownValue(const Json& schema, SchemaDocument* document) {
  if (const Json* const reference = Find(schema, "$ref")) {
    const Json* const target = document->TargetOf(*reference);
    return target == nullptr ? Any() : Reference(*target, document);
  }
  if (const Json* const parts = Find(schema, "allOf"); parts != nullptr && parts->is_array()) {
    return Value(Merged(schema, document), document);
  }
  std::vector<std::string> alternatives;
  const auto add = [&](std::string items) {
    num_bytes_ += items.size();
    alternatives.push_back(std::move(items));
  };
  if (const Json* const constant = Find(schema, "const")) {
    add(Literal(*constant));
  } else if (const Json* const values = Find(schema, "enum"); values != nullptr && values->is_array()) {
    for (const Json& value : *values) add(Literal(value));
  } else if (const Json* const any = Find(schema, "anyOf"); any != nullptr && any->is_array()) {
    for (const Json& part : *any) add(Value(part, document));
  } else if (const Json* const one = Find(schema, "oneOf"); one != nullptr && one->is_array()) {
    for (const Json& part : *one) add(Value(part, document));
  } else if (const Json* const type = Find(schema, "type"); type != nullptr && type->is_array()) {
    for (const Json& name : *type) add(OfType(name.is_string() ? name.get<std::string>() : "", schema, document));
  } else if (type != nullptr && type->is_string()) {
    add(OfType(type->get<std::string>(), schema, document));
  } else if (Find(schema, "properties") != nullptr) {
    add(Object(schema, document));
  } else if (Find(schema, "items") != nullptr) {
    add(List(schema, document));
  }
  std::string body;
  for (const std::string& items : alternatives) {
    if (!items.empty()) absl::StrAppend(&body, body.empty() ? "" : " |", items);
  }
  if (body.empty()) return Any();
  return alternatives.size() == 1 ? body : InParentheses(body);
}

std::string BareGrammar::OfType(const std::string& type, const Json& schema, SchemaDocument* document) {
  if (type == "string") return String(schema);
  if (type == "boolean") return " (\"true\" | \"false\")";
  if (type == "null") return " \"null\"";
  if (type == "array") return List(schema, document);
  if (type == "object") return Object(schema, document);
  if (type != "number" && type != "integer") return Any();
  Json number = {{"type", type}};
  for (const char* const key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
    if (const Json* const bound = Find(schema, key)) number[key] = *bound;
  }
  return absl::StrCat(" %json ", Dump(number));
}

// A string that contains the tag cannot be written.
std::string BareGrammar::Literal(const Json& value) const {
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    if (absl::StrContains(text, quote_)) return "";
    return absl::StrCat(" ", quote_, text.empty() ? "" : LarkLiteral(text), " ", quote_);
  }
  if (!value.is_structured()) return LarkLiteral(Dump(value));
  std::string items = LarkLiteral(value.is_object() ? "{" : "[");
  bool is_first = true;
  for (const auto& [key, member] : value.items()) {
    const std::string literal = Literal(member);
    if (literal.empty()) return "";
    absl::StrAppend(&items, is_first ? "" : LarkLiteral(","), value.is_object() ? Key(key) : "", literal);
    is_first = false;
  }
  return items + LarkLiteral(value.is_object() ? "}" : "]");
}

std::string BareGrammar::Key(const std::string& name) const {
  const bool is_bare = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == '$' || c == '@' || c >= 0x80;
  });
  return is_bare ? LarkLiteral(name + ":")
                 : absl::StrCat(" ", quote_, name.empty() ? "" : LarkLiteral(name), " ", quote_, LarkLiteral(":"));
}

std::string BareGrammar::String(const Json& schema) const {
  const int64_t min = BoundOf(schema, "minLength", 0);
  const int64_t max = BoundOf(schema, "maxLength", -1);
  const std::string first = EscapedInPattern(quote_.substr(0, 1));
  const std::string text =
      min == 0 && max < 0 ? PatternWithout(quote_) : absl::StrCat("[^", first, "]", Repetition(min, max));
  return absl::StrCat(" ", quote_, " /", text, "/ ", quote_);
}

std::string BareGrammar::List(const Json& schema, SchemaDocument* document) {
  const Json* const items = Find(schema, "items");
  const std::string item = items == nullptr ? Any() : InParentheses(Value(*items, document));
  const int64_t min = BoundOf(schema, "minItems", 0);
  const int64_t max = BoundOf(schema, "maxItems", -1);
  if (max == 0) return " \"[]\"";
  const std::string next = absl::StrCat(" (\",\"", item, ")");
  const int64_t num_first = std::max<int64_t>(min, 1);
  std::string list = item;
  if (num_first > 1) absl::StrAppend(&list, next, "~", num_first - 1);
  if (max < 0) absl::StrAppend(&list, next, "*");
  if (max > num_first) absl::StrAppend(&list, next, "~0..", max - num_first);
  return absl::StrCat(" \"[\"", min == 0 ? absl::StrCat(" [", list.substr(1), "]") : list, " \"]\"");
}

std::string BareGrammar::Object(const Json& schema, SchemaDocument* document) {
  const Json* const properties = Find(schema, "properties");
  if (properties == nullptr || !properties->is_object() || properties->empty()) {
    const Json* const others = Find(schema, "additionalProperties");
    if (others != nullptr && *others == false) return " \"{}\"";
    Any();
    return " bare_object";
  }
  const absl::flat_hash_set<absl::string_view> required = RequiredMembers(schema);
  std::vector<LarkMember> members;
  for (const auto& [name, property] : properties->items()) {
    const std::string value = Value(property, document);
    if (!value.empty()) members.push_back({Key(name) + value, required.contains(name)});
    if (num_bytes_ > max_bytes_) break;
  }
  const std::string body = LarkMembers(members, ",", max_bytes_);
  num_bytes_ += body.size();
  return absl::StrCat(" \"{\"", InParentheses(body), " \"}\"");
}

std::string BareGrammar::Reference(const Json& target, SchemaDocument* document) {
  const auto known = names_.find(&target);
  if (known != names_.end()) return known->second;
  const std::string name = absl::StrCat(" bare_", num_references_++);
  names_[&target] = name;
  // It may refer to itself.
  const std::string body = Value(target, document);
  rules_.push_back(absl::StrCat(name.substr(1), ":", body, "\n"));
  return name;
}

std::string BareGrammar::Any() {
  has_any_ = true;
  return " bare_any";
}

std::string BareGrammar::Rules() const {
  std::string rules;
  for (const std::string& rule : rules_) rules += rule;
  if (!has_any_) return rules;
  absl::StrAppend(&rules, "bare_any:", String(Json::object()),
                  " | %json {\"type\": [\"number\", \"boolean\", \"null\"]} | bare_object | bare_list\n",
                  "bare_object: \"{\" [bare_member (\",\" bare_member)*] \"}\"\n",
                  "bare_member: /[A-Za-z_][A-Za-z0-9_]*/ \":\" bare_any\n",
                  "bare_list: \"[\" [bare_any (\",\" bare_any)*] \"]\"\n");
  return rules;
}

}  // namespace quire
