// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/source_mutator.h"

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace quire::grammar {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
const T& OneOf(const T* begin, size_t size, Random* random) {
  return begin[static_cast<size_t>(random->Below(static_cast<int>(size)))];
}

template <size_t kSize>
std::string_view OneOf(const std::string_view (&pieces)[kSize], Random* random) {
  return OneOf(pieces, kSize, random);
}

// A place in `text`, and its end.
size_t PlaceIn(const std::string& text, Random* random) {
  return static_cast<size_t>(random->Below(static_cast<int>(text.size()) + 1));
}

// Schemas.

Json SmallSchema(int depth, Random* random);

Json StringSchema(Random* random) {
  static constexpr std::string_view kPatterns[] = {"^a+$", "^[A-Z]{2}-\\d{1,3}$", "[^\"\\\\]*x", "^(ab|c)*$", "\\s"};
  static constexpr std::string_view kFormats[] = {"date-time", "date",     "time", "uuid",     "ipv4",
                                                  "email",     "duration", "ipv6", "hostname", "uri"};
  Json schema = {{"type", "string"}};
  switch (random->Below(4)) {
    case 0:
      schema["pattern"] = OneOf(kPatterns, random);
      break;
    case 1:
      schema["format"] = OneOf(kFormats, random);
      break;
    case 2:
      schema["minLength"] = random->Below(3);
      schema["maxLength"] = random->Between(2, 12);
      break;
    default:
      break;
  }
  return schema;
}

Json NumberSchema(Random* random) {
  static constexpr std::string_view kLow[] = {"minimum", "exclusiveMinimum"};
  static constexpr std::string_view kHigh[] = {"maximum", "exclusiveMaximum"};
  Json schema = {{"type", random->OneIn(3) ? "number" : "integer"}};
  const double scale = random->OneIn(2) ? 1 : 0.25;
  if (random->OneIn(2)) schema[std::string(OneOf(kLow, random))] = scale * random->Between(-120, 5);
  if (random->OneIn(2)) schema[std::string(OneOf(kHigh, random))] = scale * random->Between(0, 70'000);
  return schema;
}

Json ArraySchema(int depth, Random* random) {
  Json schema = {{"type", "array"}, {"items", SmallSchema(depth - 1, random)}};
  if (random->OneIn(3)) schema["prefixItems"] = Json::array({SmallSchema(depth - 1, random)});
  if (random->OneIn(3)) schema["minItems"] = random->Below(3);
  if (random->OneIn(3)) schema["maxItems"] = random->Between(2, 6);
  return schema;
}

std::string Name(Random* random) {
  static constexpr std::string_view kNames[] = {"a", "b", "name", "\xC3\xA9\"", ""};
  return std::string(OneOf(kNames, random));
}

Json ObjectSchema(int depth, Random* random) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = random->Below(4); i > 0; --i) schema["properties"][Name(random)] = SmallSchema(depth - 1, random);
  if (random->OneIn(2)) schema["required"] = Json::array({Name(random)});
  if (random->OneIn(3)) schema["additionalProperties"] = random->OneIn(2) ? Json(false) : SmallSchema(0, random);
  if (random->OneIn(6)) schema["minProperties"] = random->Below(3);
  if (random->OneIn(6)) schema["maxProperties"] = random->Between(2, 4);
  return schema;
}

Json SmallSchema(int depth, Random* random) {
  switch (random->Below(depth > 0 ? 8 : 5)) {
    case 0:
      return StringSchema(random);
    case 1:
      return NumberSchema(random);
    case 2:
      return {{"enum", Json::array({1, "x", nullptr, true})}};
    case 3:
      return {{"type", random->OneIn(2) ? "boolean" : "null"}};
    case 4:
      return {{"const", random->Below(100)}};
    case 5:
      return ArraySchema(depth, random);
    case 6:
      return {{"anyOf", Json::array({SmallSchema(depth - 1, random), SmallSchema(depth - 1, random)})}};
    default:
      return ObjectSchema(depth, random);
  }
}

// Appends a schema and all schemas in it.
void Collect(Json* schema, std::vector<Json*>* out) {
  if (!schema->is_object()) return;
  out->push_back(schema);
  for (auto& [keyword, value] : schema->items()) {
    if (keyword == "items" || keyword == "additionalProperties") Collect(&value, out);
    const bool has_schemas = keyword == "properties" || keyword == "$defs" || keyword == "anyOf" ||
                             keyword == "oneOf" || keyword == "allOf" || keyword == "prefixItems";
    if (!has_schemas || !value.is_structured()) continue;
    for (Json& part : value) Collect(&part, out);
  }
}

void AddOddKeyword(Json* schema, Random* random) {
  static constexpr std::string_view kKeywords[] = {
      "type",      "enum",     "const",   "properties", "required", "minItems",  "maxLength", "pattern",
      "format",    "minimum",  "maximum", "anyOf",      "oneOf",    "allOf",     "not",       "uniqueItems",
      "maxLength", "minItems", "$ref",    "title",      "x-note",   "multipleOf"};
  const Json values[] = {
      0,           -1, 3,       0.5,  1e300,         "string",       "#",
      "#/$defs/n", "", nullptr, true, Json::array(), Json::object(), Json::array({"string", "null"})};
  (*schema)[std::string(OneOf(kKeywords, random))] = OneOf(values, std::size(values), random);
}

std::string ChangedSchema(const std::string& text, Random* random) {
  Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<Json*> schemas;
  if (!root.is_discarded()) Collect(&root, &schemas);
  if (schemas.empty()) return SmallSchema(2, random).dump();
  Json* const chosen = schemas[static_cast<size_t>(random->Below(static_cast<int>(schemas.size())))];
  switch (random->Below(9)) {
    case 0:
    case 1:
      if (chosen == &root) break;
      *chosen = SmallSchema(2, random);
      break;
    case 2: {
      const Json part = *chosen;
      *chosen = {{"type", "array"}, {"items", part}};
      break;
    }
    case 3: {
      const Json part = *chosen;
      *chosen = {{"anyOf", Json::array({SmallSchema(1, random), part})}};
      break;
    }
    case 4: {
      const Json part = *schemas[static_cast<size_t>(random->Below(static_cast<int>(schemas.size())))];
      if (chosen != &root) *chosen = part;
      break;
    }
    case 5:
      if (chosen != &root) *chosen = {{"$ref", random->OneIn(2) ? "#" : "#/$defs/n"}};
      break;
    case 6:
      AddOddKeyword(chosen, random);
      break;
    case 7:
      if (!chosen->empty()) chosen->erase(std::next(chosen->begin(), random->Below(static_cast<int>(chosen->size()))));
      break;
    default: {
      Json& properties = (*chosen)["properties"];
      if (!properties.is_object()) properties = Json::object();
      properties[Name(random)] = SmallSchema(1, random);
    }
  }
  return root.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// Expressions.

std::string ChangedRegex(std::string text, Random* random) {
  static constexpr std::string_view kPieces[] = {"(a|b)*",
                                                 "[^x]+",
                                                 "\\d{2}",
                                                 "x?",
                                                 ".",
                                                 "(?:ab){1,3}",
                                                 "\\u{1F600}",
                                                 "|",
                                                 "\\s",
                                                 "[a-f-]",
                                                 "\xC3\xA9",
                                                 "\\x41",
                                                 "\\w*",
                                                 "y{0,4}",
                                                 "(|z)",
                                                 "\\.",
                                                 "[\\d_]",
                                                 "a+?",
                                                 "[\xE4\xB8\x80-\xE9\xBF\xBF]",
                                                 "(c(d|e)f)+",
                                                 "[^]",
                                                 "{3}",
                                                 "(",
                                                 "\\b",
                                                 "^"};
  if (random->OneIn(5)) return text.erase(PlaceIn(text, random), static_cast<size_t>(random->Between(1, 2)));
  return text.insert(PlaceIn(text, random), OneOf(kPieces, random));
}

// The places behind the names, and between the parts of a rule.
std::vector<size_t> SpacesOf(const std::string& text) {
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' || text[i] == '\n') places.push_back(i);
  }
  places.push_back(text.size());
  return places;
}

// The name at the beginning of a line of `text`.
std::string RuleOf(const std::string& text, Random* random) {
  const size_t begin = text.rfind('\n', PlaceIn(text, random)) + 1;  // 0 if there is none.
  return text.substr(begin, text.find_first_of(" :\n", begin) - begin);
}

std::string ChangedEbnf(std::string text, Random* random) {
  static constexpr std::string_view kBoth[] = {"\"x\"", "(\"a\" | \"b\")*", "\"\xC3\xA9\"?", "|", "(\"q\")+", "\"\""};
  static constexpr std::string_view kGbnf[] = {"[a-z]+", "[^\"\\n]*", "\"y\"{1,3}", "([0-9] \".\")?", "[\\x41-\\x5a]"};
  static constexpr std::string_view kLark[] = {"/[a-z]+/", "\"a\"..\"f\"", "[\"w\"]", "\"r\" ~ 1..3",
                                               "%json {\"type\": \"integer\"}"};
  const bool is_gbnf = text.find("::=") != text.npos;
  const std::vector<size_t> spaces = SpacesOf(text);
  const size_t place = spaces[static_cast<size_t>(random->Below(static_cast<int>(spaces.size())))];
  switch (random->Below(8)) {
    case 0:
      return text.erase(PlaceIn(text, random), static_cast<size_t>(random->Between(1, 3)));
    case 1:
    case 2:
      return text.insert(place, " " + RuleOf(text, random));
    case 3: {
      // A new rule, which an old one calls.
      const std::string name = "r" + std::to_string(random->Below(1000));
      const std::string piece(is_gbnf ? OneOf(kGbnf, random) : OneOf(kLark, random));
      text.insert(place, " " + name + "?");
      return text + "\n" + name + (is_gbnf ? " ::= " : ": ") + piece + " " + std::string(OneOf(kBoth, random));
    }
    case 4:
      return text.insert(place, "*");
    case 5:
      return text.insert(place, " " + std::string(OneOf(kBoth, random)) + " ");
    default:
      return text.insert(place, " " + std::string(is_gbnf ? OneOf(kGbnf, random) : OneOf(kLark, random)) + " ");
  }
}

std::string ChangedChoices(std::string text, Random* random) {
  static constexpr std::string_view kPieces[] = {"\n",           "no", "not", "\nyes", "a",   "\xC3\xA9",
                                                 "\xE4\xB8\xAD", "\"", " ",   "\n\n",  "\xFF"};
  if (random->OneIn(4)) return text.erase(PlaceIn(text, random), 1);
  return text.insert(PlaceIn(text, random), OneOf(kPieces, random));
}

}  // namespace

std::string ChangedSource(Source::Kind kind, std::string text, Random* random) {
  switch (kind) {
    case Source::Kind::kJsonSchema:
    case Source::Kind::kJsonObject:
      return ChangedSchema(text, random);
    case Source::Kind::kRegex:
      return ChangedRegex(std::move(text), random);
    case Source::Kind::kEbnf:
      return ChangedEbnf(std::move(text), random);
    case Source::Kind::kChoice:
      break;
  }
  return ChangedChoices(std::move(text), random);
}

}  // namespace quire::grammar
