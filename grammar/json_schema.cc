// SPDX-License-Identifier: Apache-2.0

#include "grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/json_depth.h"
#include "base/status.h"
#include "base/utf8.h"
#include "grammar/json_text.h"
#include "grammar/number_text.h"
#include "grammar/regex_parser.h"
#include "grammar/schema_formats.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_merge.h"

namespace quire::grammar {
namespace {

constexpr int kMaxSchemas = 2000;
constexpr int kMaxGraphNodes = 20'000;
// The most digits before the point of a bound, so that it can be an integer of 64 bits.
constexpr int kMaxBoundDigits = 20;

// Reads a number as it is written.
absl::StatusOr<Decimal> DecimalOf(const SchemaJson& schema, const char* keyword, const SchemaPlace& place) {
  const SchemaJson& value = schema[keyword];
  if (!value.is_number()) return KeywordError(place, schema, keyword, ", it must be a number");
  const std::optional<Decimal> number = Decimal::Of(value.dump(), kMaxBoundDigits);
  // A number beyond 64 bits was rounded when it was read.
  const bool is_exact = !value.is_number_float() || std::abs(value.get<double>()) < 0x1p63;
  if (number.has_value() && is_exact && number->fraction.size() <= kMaxNumberDigits) return *number;
  return KeywordError(place, schema, keyword,
                      ", supported are integers of 64 bits and other numbers below 2^63 with at ", "most ",
                      kMaxNumberDigits, " digits behind the point");
}

// The rule of the keywords for numbers.
absl::StatusOr<NumberRule> NumberRuleOf(const SchemaJson& schema, const SchemaPlace& place) {
  NumberRule rule;
  for (const auto& [keyword, is_excluded] : {std::pair("minimum", false), std::pair("exclusiveMinimum", true)}) {
    if (!schema.contains(keyword)) continue;
    QUIRE_ASSIGN_OR_RETURN(const Decimal bound, DecimalOf(schema, keyword, place));
    rule.AtLeast(bound, is_excluded);
  }
  for (const auto& [keyword, is_excluded] : {std::pair("maximum", false), std::pair("exclusiveMaximum", true)}) {
    if (!schema.contains(keyword)) continue;
    QUIRE_ASSIGN_OR_RETURN(const Decimal bound, DecimalOf(schema, keyword, place));
    rule.AtMost(bound, is_excluded);
  }
  return rule;
}

// Parses a document. INVALID_ARGUMENT, with the place, when it is not JSON in UTF-8, or nested too deeply.
absl::StatusOr<SchemaJson> ParseDocument(std::string_view text) {
  QUIRE_RETURN_IF_ERROR(CheckUtf8(text, "the schema"));
  if (const int depth = JsonDepth(text); depth > 2 * kMaxSchemaDepth) {
    return absl::InvalidArgumentError(absl::StrCat("the schema is nested in ", depth, " levels of JSON, at most ",
                                                   2 * kMaxSchemaDepth, " are supported"));
  }
  try {
    return SchemaJson::parse(text);
  } catch (const SchemaJson::parse_error& error) {
    const size_t at = std::clamp<size_t>(error.byte, 1, text.size() + 1) - 1;
    return ErrorAtByte(text, at, "the schema is not valid JSON");
  } catch (const SchemaJson::out_of_range&) {
    return absl::InvalidArgumentError("the schema has a number that is too large for a double");
  }
}

// Writes each schema as a rule. Schemas wait in a queue, so that references may form circles.
class SchemaCompiler {
 public:
  SchemaCompiler(SyntaxTree* tree, JsonText* json) : tree_(*tree), json_(*json) {}

  absl::StatusOr<ExprId> Run(std::string_view text) {
    QUIRE_ASSIGN_OR_RETURN(root_, ParseDocument(text));
    const ExprId root = Use(root_, SchemaPlace(root_, ""));
    while (!queue_.empty()) {
      const Pending next = std::move(queue_.front());
      queue_.pop_front();
      if (tree_.num_rules() > kMaxSchemas) {
        return SchemaError(next.place, "there are more than ", kMaxSchemas, " schemas");
      }
      QUIRE_ASSIGN_OR_RETURN(const ExprId body, Body(*next.schema, next.place));
      tree_.SetBody(next.rule, body);
    }
    return root;
  }

 private:
  struct Pending {
    const SchemaJson* schema;
    SchemaPlace place;
    RuleId rule;
  };

  RuleId RuleOf(const SchemaJson& schema, const SchemaPlace& place) {
    const auto [entry, is_new] = rules_.try_emplace(&schema, -1);
    if (is_new) {
      entry->second = tree_.AddRule(absl::StrCat("#", place.pointer()), /*may_be_inlined=*/false);
      queue_.push_back({&schema, place, entry->second});
    }
    return entry->second;
  }
  ExprId Use(const SchemaJson& schema, const SchemaPlace& place) { return tree_.Use(RuleOf(schema, place)); }
  // Keeps a schema that is not in the document.
  const SchemaJson& Keep(SchemaJson schema) {
    return *made_.emplace_back(std::make_unique<SchemaJson>(std::move(schema)));
  }

  absl::StatusOr<ExprId> Body(const SchemaJson& schema, const SchemaPlace& place) {
    QUIRE_RETURN_IF_ERROR(CheckKeywords(schema, place, /*is_root=*/place.pointer().empty()));
    if (schema == true) return json_.AnyValue();
    if (schema == false) return tree_.Nothing();
    for (const char* keyword : {"$ref", "allOf", "anyOf", "oneOf"}) {
      if (schema.contains(keyword)) return Joined(schema, keyword, place);
    }
    if (schema.contains("enum") || schema.contains("const")) return Constant(schema, place);
    QUIRE_ASSIGN_OR_RETURN(const std::set<std::string> types, TypesOf(schema, place));
    if (types.size() > 1 && TypedKeywords(schema).empty() && !schema.contains("type")) return json_.AnyValue();
    std::vector<ExprId> parts;
    for (const std::string& type : types) {
      QUIRE_ASSIGN_OR_RETURN(const ExprId part, OfType(type, schema, place));
      parts.push_back(part);
    }
    return tree_.Choice(std::move(parts));
  }

  // A schema with a keyword that refers to other schemas.
  absl::StatusOr<ExprId> Joined(const SchemaJson& schema, const std::string& keyword, const SchemaPlace& place) {
    SchemaJson rest = SchemaJson::object();
    for (const auto& [name, value] : schema.items()) {
      if (name != keyword && !IsAnnotation(name)) rest[name] = value;
    }
    if (keyword == "$ref") {
      if (!rest.empty()) {
        return KeywordError(place, schema, "$ref", ", and \"$ref\" beside \"", rest.begin().key(),
                            "\" is not supported");
      }
      QUIRE_ASSIGN_OR_RETURN(const Referenced referenced, Resolve(root_, schema, place));
      return Use(*referenced.schema, referenced.place);
    }
    const SchemaJson& members = schema[keyword];
    if (!members.is_array() || members.empty()) {
      return KeywordError(place, schema, keyword, ", it must be an array of schemas");
    }
    const SchemaPlace members_place = place.Child(keyword);
    if (keyword == "allOf") return AllOf(std::move(rest), members, place);
    if (keyword == "oneOf") QUIRE_RETURN_IF_ERROR(CheckDisjoint(members, members_place));
    std::vector<ExprId> parts;
    for (size_t i = 0; i < members.size(); ++i) {
      const SchemaPlace at = members_place.Child(i);
      if (rest.empty()) {
        parts.push_back(Use(members[i], at));
        continue;
      }
      QUIRE_RETURN_IF_ERROR(CheckKeywords(members[i], at, /*is_root=*/false));
      QUIRE_ASSIGN_OR_RETURN(SchemaJson merged, Merge(rest, members[i], keyword, at));
      parts.push_back(Use(Keep(std::move(merged)), SchemaPlace::Join(at, place)));
    }
    return tree_.Choice(std::move(parts));
  }

  absl::StatusOr<ExprId> AllOf(SchemaJson merged, const SchemaJson& members, const SchemaPlace& place) {
    const SchemaPlace members_place = place.Child("allOf");
    SchemaPlace joined = members_place.Child(0);
    for (size_t i = 0; i < members.size(); ++i) {
      const SchemaPlace at = members_place.Child(i);
      QUIRE_RETURN_IF_ERROR(CheckKeywords(members[i], at, /*is_root=*/false));
      QUIRE_ASSIGN_OR_RETURN(merged, Merge(merged, members[i], "allOf", at));
      if (i > 0) joined = SchemaPlace::Join(std::move(joined), at);
    }
    return Use(Keep(std::move(merged)), SchemaPlace::Join(std::move(joined), place));
  }

  absl::Status CheckDisjoint(const SchemaJson& members, const SchemaPlace& place) {
    for (size_t i = 0; i < members.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (AreDisjoint(root_, members[k], members[i])) continue;
        return SchemaError(place, "the keyword \"oneOf\" is supported only where no value fits two of its schemas; ",
                           "schemas ", k, " and ", i, " may both fit: give them different types, or a required ",
                           "property with different constants");
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ExprId> Constant(const SchemaJson& schema, const SchemaPlace& place) {
    const char* keyword = schema.contains("enum") ? "enum" : "const";
    if (schema.contains("enum") && schema.contains("const")) {
      return KeywordError(place, schema, "enum", ", and \"enum\" beside \"const\" is not supported");
    }
    if (!TypedKeywords(schema).empty()) {
      const std::string typed = *TypedKeywords(schema).begin();
      return KeywordError(place, schema, typed, ", and \"", typed, "\" beside \"", keyword, "\" is not supported");
    }
    const SchemaJson values = schema.contains("enum") ? schema["enum"] : SchemaJson::array({schema["const"]});
    if (!values.is_array()) return KeywordError(place, schema, "enum", ", it must be an array");
    QUIRE_ASSIGN_OR_RETURN(std::set<std::string> types, TypesOf(schema, place));
    if (types.contains("number")) types.insert("integer");
    std::vector<ExprId> parts;
    for (const SchemaJson& value : values) {
      if (types.contains(TypeOfValue(value))) parts.push_back(tree_.Bytes(value.dump()));
    }
    return tree_.Choice(std::move(parts));
  }

  absl::StatusOr<ExprId> OfType(const std::string& type, const SchemaJson& schema, const SchemaPlace& place) {
    if (type == "null") return tree_.Bytes("null");
    if (type == "boolean") return tree_.Choice({tree_.Bytes("true"), tree_.Bytes("false")});
    if (type == "string") return StringBody(schema, place);
    if (type == "array") return ArrayBody(schema, place);
    if (type == "object") return ObjectBody(schema, place);
    return NumberBody(schema, type == "integer", place);
  }

  absl::StatusOr<ExprId> NumberBody(const SchemaJson& schema, bool is_integer, const SchemaPlace& place) {
    QUIRE_ASSIGN_OR_RETURN(NumberRule rule, NumberRuleOf(schema, place));
    if (!rule.low.has_value() && !rule.high.has_value()) return is_integer ? json_.Integer() : json_.Number();
    rule.is_integer = is_integer;
    return AddNumbers(rule, &tree_);
  }

  absl::StatusOr<ExprId> StringBody(const SchemaJson& schema, const SchemaPlace& place) {
    const bool has_length = schema.contains("minLength") || schema.contains("maxLength");
    if (schema.contains("pattern") && (has_length || schema.contains("format"))) {
      return KeywordError(place, schema, "pattern", ", and \"pattern\" beside \"",
                          has_length ? "minLength or maxLength" : "format", "\" is not supported");
    }
    if (schema.contains("pattern")) {
      if (!schema["pattern"].is_string()) return KeywordError(place, schema, "pattern", ", it must be a string");
      absl::StatusOr<ExprId> body =
          ParseRegexSearch(schema["pattern"].get<std::string>(), RegexText::kJsonString, &tree_);
      if (!body.ok()) return KeywordError(place, schema, "pattern", ", ", body.status().message());
      return Quoted(*body);
    }
    QUIRE_ASSIGN_OR_RETURN(const std::optional<int> min, CountOf(schema, "minLength", place));
    QUIRE_ASSIGN_OR_RETURN(const std::optional<int> max, CountOf(schema, "maxLength", place));
    if (schema.contains("format")) return Format(schema, min, max, place);
    if (!has_length) return json_.String();
    if (max.has_value() && *max < min.value_or(0)) return tree_.Nothing();
    return json_.StringOfLength(min.value_or(0), max.value_or(kUnbounded));
  }

  ExprId Quoted(ExprId body) { return tree_.Sequence({tree_.Bytes("\""), body, tree_.Bytes("\"")}); }

  absl::StatusOr<ExprId> Format(const SchemaJson& schema, std::optional<int> min, std::optional<int> max,
                                const SchemaPlace& place) {
    const SchemaJson& format = schema["format"];
    if (!format.is_string()) return KeywordError(place, schema, "format", ", it must be a string");
    const SchemaFormat* const known = FindSchemaFormat(format.get<std::string>());
    if (known == nullptr) return KeywordError(place, schema, "format", ", which is not supported");
    if (min.value_or(0) > known->min_length || max.value_or(known->max_length) < known->max_length) {
      return KeywordError(place, schema, "format",
                          ", and \"format\" beside \"minLength or maxLength\" is supported only where they allow all ",
                          "texts of the format, which have ", known->min_length, " to ", known->max_length,
                          " characters");
    }
    QUIRE_ASSIGN_OR_RETURN(const ExprId body, ParseRegex(known->regex, RegexText::kJsonString, &tree_));
    return Quoted(body);
  }

  // Node i of the graph stands behind i items. Behind the last node the number of items does not matter.
  absl::StatusOr<ExprId> ArrayBody(const SchemaJson& schema, const SchemaPlace& place) {
    QUIRE_ASSIGN_OR_RETURN(const std::optional<int> min_items, CountOf(schema, "minItems", place));
    QUIRE_ASSIGN_OR_RETURN(const std::optional<int> max_items, CountOf(schema, "maxItems", place));
    const SchemaJson none = SchemaJson::array();
    const SchemaJson& prefix = schema.contains("prefixItems") ? schema["prefixItems"] : none;
    if (!prefix.is_array()) return KeywordError(place, schema, "prefixItems", ", it must be an array of schemas");
    if (schema.contains("items") && schema["items"].is_array()) {
      return KeywordError(place, schema, "items", ", and an array is not supported: use prefixItems");
    }
    const SchemaPlace prefix_place = place.Child("prefixItems");
    const int num_prefix = static_cast<int>(prefix.size());
    const int min = min_items.value_or(0);
    const int last = max_items.value_or(std::max({num_prefix, min, 1}));
    if (last < min) return tree_.Nothing();
    const ExprId item = schema.contains("items") ? Use(schema["items"], place.Child("items")) : json_.AnyValue();
    const int end = last + 1;
    std::vector<Expr::Edge> edges;
    const auto add = [&](int from, int to, ExprId value) {
      edges.push_back({from, to, tree_.Sequence({Separator(from == 0), value})});
    };
    for (int i = 0; i <= last; ++i) {
      const auto index = static_cast<size_t>(i);
      if (i < last) add(i, i + 1, i < num_prefix ? Use(prefix[index], prefix_place.Child(index)) : item);
      if (i >= min) edges.push_back({i, end, Close("]")});
    }
    if (!max_items.has_value()) add(last, last, item);
    return tree_.Sequence({tree_.Bytes("["), tree_.Graph(end + 1, std::move(edges))});
  }

  // Returns what stands in front of an item or a property.
  ExprId Separator(bool is_first) {
    return is_first ? json_.Space() : tree_.Sequence({tree_.Bytes(","), json_.Space()});
  }
  ExprId Close(std::string_view bracket) { return tree_.Sequence({json_.Space(), tree_.Bytes(bracket)}); }

  struct Property {
    std::string name;
    bool is_required;
    ExprId value;
  };

  // The properties in the order in which they come.
  absl::StatusOr<std::vector<Property>> PropertiesOf(const SchemaJson& schema, const SchemaPlace& place) {
    const SchemaJson none = SchemaJson::object();
    const SchemaJson no_names = SchemaJson::array();
    const SchemaJson& described = schema.contains("properties") ? schema["properties"] : none;
    const SchemaJson& required = schema.contains("required") ? schema["required"] : no_names;
    if (!described.is_object()) {
      return KeywordError(place, schema, "properties", ", it must be an object of schemas");
    }
    const bool are_names = required.is_array() && std::all_of(required.begin(), required.end(),
                                                              [](const SchemaJson& name) { return name.is_string(); });
    if (!are_names) return KeywordError(place, schema, "required", ", it must be an array of strings");
    const SchemaPlace described_place = place.Child("properties");
    std::vector<Property> properties;
    for (const auto& [name, value] : described.items()) {
      const bool is_required = std::find(required.begin(), required.end(), name) != required.end();
      properties.push_back({name, is_required, Use(value, described_place.Child(name))});
    }
    for (const SchemaJson& entry : required) {
      const std::string& name = entry.get_ref<const std::string&>();
      const bool is_known = std::any_of(properties.begin(), properties.end(),
                                        [&](const Property& property) { return property.name == name; });
      if (is_known) continue;
      const ExprId value = schema.contains("additionalProperties")
                               ? Use(schema["additionalProperties"], place.Child("additionalProperties"))
                               : json_.AnyValue();
      properties.push_back({name, /*is_required=*/true, value});
    }
    return properties;
  }

  // Node (i, c) of the graph stands behind property i, when there are c properties, or at least c if c is the last one.
  absl::StatusOr<ExprId> ObjectBody(const SchemaJson& schema, const SchemaPlace& place) {
    QUIRE_ASSIGN_OR_RETURN(const std::optional<int> min_properties, CountOf(schema, "minProperties", place));
    QUIRE_ASSIGN_OR_RETURN(const std::optional<int> max_properties, CountOf(schema, "maxProperties", place));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<Property> properties, PropertiesOf(schema, place));
    const bool is_open = schema.contains("additionalProperties")
                             ? schema["additionalProperties"] != false
                             : !schema.contains("properties") && !schema.contains("required");
    const int num_properties = static_cast<int>(properties.size());
    const int min = min_properties.value_or(0);
    const int num_required = static_cast<int>(
        std::count_if(properties.begin(), properties.end(), [](const Property& p) { return p.is_required; }));
    if (is_open && min > std::max(1, num_required)) {
      return KeywordError(place, schema, "minProperties",
                          ", which is not supported where other properties may come: two could have the same name");
    }
    const int last = std::max({1, std::min(min, kMaxCount), max_properties.value_or(0)});
    if (max_properties.has_value() && *max_properties < min) return tree_.Nothing();
    if (int64_t{num_properties + 1} * (last + 1) > kMaxGraphNodes) {
      return SchemaError(place, num_properties, " properties and numbers of them up to ", last, " need ",
                         int64_t{num_properties + 1} * (last + 1), " nodes, at most ", kMaxGraphNodes,
                         " are supported");
    }
    const auto node = [&](int property, int count) { return property * (last + 1) + count; };
    const auto may_add = [&](int count) { return !max_properties.has_value() || count < *max_properties; };
    const int end = node(num_properties + 1, 0);
    std::vector<Expr::Edge> edges;
    for (int i = 0; i < num_properties; ++i) {
      const Property& property = properties[static_cast<size_t>(i)];
      const ExprId key = tree_.Bytes(SchemaJson(property.name).dump() + ":");
      for (int count = 0; count <= last; ++count) {
        if (!property.is_required) edges.push_back({node(i, count), node(i + 1, count), tree_.Empty()});
        if (!may_add(count)) continue;
        const ExprId entry = tree_.Sequence({Separator(count == 0), key, json_.Space(), property.value});
        edges.push_back({node(i, count), node(i + 1, std::min(count + 1, last)), entry});
      }
    }
    const ExprId other = is_open ? OtherProperty(schema, properties, place) : tree_.Nothing();
    for (int count = 0; count <= last; ++count) {
      if (is_open && may_add(count)) {
        const ExprId entry = tree_.Sequence({Separator(count == 0), other});
        edges.push_back({node(num_properties, count), node(num_properties, std::min(count + 1, last)), entry});
      }
      if (count >= min) edges.push_back({node(num_properties, count), end, Close("}")});
    }
    return tree_.Sequence({tree_.Bytes("{"), tree_.Graph(end + 1, std::move(edges))});
  }

  ExprId OtherProperty(const SchemaJson& schema, const std::vector<Property>& properties, const SchemaPlace& place) {
    const ExprId value = schema.contains("additionalProperties")
                             ? Use(schema["additionalProperties"], place.Child("additionalProperties"))
                             : json_.AnyValue();
    std::vector<std::string> names;
    for (const Property& property : properties) names.push_back(property.name);
    const RuleId key = tree_.AddRule(absl::StrCat("keys of #", place.pointer()), /*may_be_inlined=*/false);
    tree_.SetBody(key, json_.KeyExcept(names));
    return tree_.Sequence({tree_.Use(key), tree_.Bytes(":"), json_.Space(), value});
  }

  SchemaJson root_;
  SyntaxTree& tree_;
  JsonText& json_;
  std::deque<Pending> queue_;
  absl::flat_hash_map<const SchemaJson*, RuleId> rules_;
  std::vector<std::unique_ptr<SchemaJson>> made_;
};

}  // namespace

absl::StatusOr<SyntaxTree> ParseJsonSchema(std::string_view text) {
  SyntaxTree tree;
  JsonText json(&tree);
  QUIRE_RETURN_IF_ERROR(AddJsonSchema(text, &tree, &json).status());  // Its first rule is rule 0.
  return tree;
}

absl::StatusOr<ExprId> AddJsonSchema(std::string_view text, SyntaxTree* tree, JsonText* json) {
  return SchemaCompiler(tree, json).Run(text);
}

}  // namespace quire::grammar
