// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grammar/grammar.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/grammar/random_text.h"
#include "tests/grammar/schema_check.h"
#include "tests/grammar/trial_vocabulary.h"

namespace quire::grammar {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

absl::StatusOr<std::shared_ptr<const Automaton>> CompileSchema(const std::string& schema) {
  return Compile({.kind = Source::Kind::kJsonSchema, .text = schema});
}

bool SchemaMatches(const std::string& schema, const std::string& text) {
  const auto automaton = CompileSchema(schema);
  EXPECT_TRUE(automaton.ok()) << schema << ": " << automaton.status();
  return automaton.ok() && Matches(*automaton, text);
}

TEST(JsonSchemaTest, PropertiesComeInTheirOrderAndOptionalOnesMayBeMissing) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"},
                                 "c": {"enum": ["x", 1, [2, {"k": null}]]}}, "required": ["b"]})";
  for (const char* text : {R"({"b":null})", R"({"a": 1, "b": null, "c": "x"})", "{\n  \"b\": null,\n  \"c\": 1\n}",
                           R"({"b":null,"c":[2,{"k":null}]})"}) {
    EXPECT_TRUE(SchemaMatches(schema, text)) << text;
  }
  for (const char* text : {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"b":null,"d":1})", R"({"b":null,})",
                           R"({,"b":null})", R"({"a":1 "b":null})"}) {
    EXPECT_FALSE(SchemaMatches(schema, text)) << text;
  }
}

TEST(JsonSchemaTest, OtherPropertiesHaveOtherNames) {
  const std::string schema = R"({"properties": {"ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}})";
  EXPECT_TRUE(SchemaMatches(schema, R"({"ab":null,"a":1,"abc":2,"é":3})"));
  EXPECT_FALSE(SchemaMatches(schema, R"({"ab":1})"));
  EXPECT_FALSE(SchemaMatches(schema, R"({"\u0061b":1})"));
  EXPECT_FALSE(SchemaMatches(schema, R"({"a":null})"));
}

TEST(JsonSchemaTest, IntegersAndNumbersStayWithinTheirBounds) {
  for (const auto& [low, high] :
       std::vector<std::pair<int, int>>{{0, 0}, {-3, 12}, {7, 123}, {-250, -98}, {99, 1001}}) {
    const Json schema = {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
    const auto automaton = CompileSchema(schema.dump());
    ASSERT_TRUE(automaton.ok());
    for (int i = -1200; i <= 1200; ++i) {
      ASSERT_EQ(Matches(*automaton, std::to_string(i)), i >= low && i <= high) << i << " in " << schema;
    }
    EXPECT_FALSE(Matches(*automaton, "-0"));
  }
  const std::string number = R"({"type": "number", "exclusiveMinimum": 0, "maximum": 2.5})";
  for (const char* text : {"0.5", "1", "1.25", "2", "2.5", "0.001", "2.50"}) {
    EXPECT_TRUE(SchemaMatches(number, text)) << text;
  }
  for (const char* text : {"0", "-0.5", "3", "2.75", "0.0", "1e9", "2.51"}) {
    EXPECT_FALSE(SchemaMatches(number, text)) << text;
  }
}

TEST(JsonSchemaTest, BoundsOfNumbersKeepTheirFractions) {
  const std::string narrow = R"({"type": "number", "minimum": 0.5, "exclusiveMaximum": 0.75})";
  for (const char* text : {"0.5", "0.74", "0.6"}) EXPECT_TRUE(SchemaMatches(narrow, text)) << text;
  for (const char* text : {"0.49", "0.75", "0", "1"}) EXPECT_FALSE(SchemaMatches(narrow, text)) << text;
  const std::string small = R"({"type": "number", "minimum": 1e-3, "maximum": 2E-3})";
  EXPECT_TRUE(SchemaMatches(small, "0.0015"));
  EXPECT_FALSE(SchemaMatches(small, "0.0025"));
  const std::string integers = R"({"type": "integer", "minimum": -1.5, "exclusiveMaximum": 2.25})";
  for (const char* text : {"-1", "0", "2"}) EXPECT_TRUE(SchemaMatches(integers, text)) << text;
  for (const char* text : {"-2", "3", "1.5"}) EXPECT_FALSE(SchemaMatches(integers, text)) << text;
}

TEST(JsonSchemaTest, BoundsAreExactBeyondDoubles) {
  const std::string schema = R"({"type": "integer", "minimum": 9007199254740993, "maximum": 18446744073709551615})";
  for (const char* text : {"9007199254740993", "18446744073709551615"}) EXPECT_TRUE(SchemaMatches(schema, text));
  for (const char* text : {"9007199254740992", "18446744073709551616"}) EXPECT_FALSE(SchemaMatches(schema, text));
}

TEST(JsonSchemaTest, RefersToItself) {
  const std::string schema = R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties":
      {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
      "required": ["value", "children"]}}})";
  EXPECT_TRUE(SchemaMatches(schema, R"({"value":1,"children":[{"value":2,"children":[]}]})"));
  EXPECT_FALSE(SchemaMatches(schema, R"({"value":1,"children":[{"value":2}]})"));
}

TEST(JsonSchemaTest, AdditionalPropertiesOfOneSchemaHoldForThePropertiesOfAnother) {
  const std::string closed = R"({"allOf": [{"properties": {"x": {"type": "integer"}}, "additionalProperties": false},
                                           {"properties": {"x": true, "y": {"type": "integer"}}}]})";
  EXPECT_TRUE(SchemaMatches(closed, R"({"x":1})"));
  EXPECT_FALSE(SchemaMatches(closed, R"({"x":1,"y":2})"));
  EXPECT_FALSE(SchemaMatches(closed, R"({"y":2})"));
  const std::string base =
      R"({"type": "object", "properties": {"kind": {"type": "null"}}, "additionalProperties": false,
                               "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                                         {"required": ["kind"]}]})";
  EXPECT_TRUE(SchemaMatches(base, R"({"kind":null})"));
  EXPECT_FALSE(SchemaMatches(base, R"({"kind":null,"a":1})"));
  EXPECT_FALSE(SchemaMatches(base, R"({"a":1})"));
  const std::string open = R"({"allOf": [{"properties": {"x": {"type": "null"}}, "additionalProperties": true},
      {"properties": {"y": {"type": "integer"}}, "additionalProperties": {"type": "null", "title": "other"}}]})";
  EXPECT_TRUE(SchemaMatches(open, R"({"x":null,"y":1,"z":null})"));
  EXPECT_FALSE(SchemaMatches(open, R"({"x":null,"y":null})"));
  const std::string narrowed = R"({"allOf": [{"properties": {"x": {"type": "null"}}, "additionalProperties": true},
      {"properties": {"y": {"type": "integer"}}, "additionalProperties": {"type": "null"}}]})";
  EXPECT_TRUE(SchemaMatches(narrowed, R"({"x":null,"y":1,"z":null})"));
  EXPECT_FALSE(SchemaMatches(narrowed, R"({"z":1})"));
}

TEST(JsonSchemaTest, EqualValuesMayBeWrittenInDifferentWays) {
  const std::string schema = R"({"allOf": [{"const": {"a": 1, "b": 2}}, {"const": {"b": 2.0, "a": 1}}]})";
  EXPECT_TRUE(SchemaMatches(schema, R"({"a":1,"b":2})"));
  EXPECT_TRUE(
      SchemaMatches(R"({"oneOf": [{"const": 9007199254740993}, {"const": 9007199254740992.0}]})", "9007199254740993"));
}

TEST(JsonSchemaTest, FormatsAndPatternsHoldWithinStrings) {
  EXPECT_TRUE(SchemaMatches(R"({"format": "date-time"})", R"("2024-02-28T23:59:59.5+01:00")"));
  EXPECT_FALSE(SchemaMatches(R"({"format": "date"})", R"("2024-02-30")"));
  EXPECT_TRUE(SchemaMatches(R"({"format": "uuid"})", R"("123e4567-e89b-12d3-a456-426614174000")"));
  EXPECT_FALSE(SchemaMatches(R"({"format": "ipv4"})", R"("1.2.3.256")"));
  EXPECT_TRUE(SchemaMatches(R"({"format": "email"})", R"("a.b@example.org")"));
  EXPECT_TRUE(SchemaMatches(R"({"pattern": "^a\"\\\\$"})", R"("a\"\\")"));
  EXPECT_TRUE(SchemaMatches(R"({"pattern": "b"})", R"("abc")"));
  EXPECT_FALSE(SchemaMatches(R"({"pattern": "b"})", R"("ac")"));
}

TEST(JsonSchemaTest, RefusesWhatItDoesNotSupportByKeywordAndPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"disallow": {}})", R"(at #/disallow: the keyword "disallow" is not supported; its value is {})"},
      {R"({"properties": {"a/b": {"type": "array", "contains": {"$recursiveRef": "#"}}}})",
       R"(at #/properties/a~1b/contains/$recursiveRef: the keyword "$recursiveRef" is not supported)"},
      {R"({"items": {"multipleOf": 0}})", R"(at #/items/multipleOf: the keyword "multipleOf" is 0, it must be more)"},
      {R"({"type": "string", "nullable": true})",
       R"(at #/nullable: the keyword "nullable" is true, which is no keyword)"},
      {R"({"anyOf": {}})", R"(at #/anyOf: the keyword "anyOf" is {}, it must be an array of schemas)"},
      {R"({"type": "integer", "minimum": 18446744073709551617})",
       R"(at #/minimum: the keyword "minimum" is 1.8446744073709552e+19, supported are integers of 64 bits)"},
      {R"({"type": "number", "maximum": 1e-19})",
       R"(the keyword "maximum" is 1e-19, supported are integers of 64 bits and other numbers below 2^63 with at most )"
       R"(18 digits behind the point)"},
      {R"({"items": {"maximum": "9"}})", R"(at #/items/maximum: the keyword "maximum" is "9", it must be a number)"},
      {R"({"allOf": [{"properties": {"a": 1}}, {"properties": [2], "additionalProperties": false}]})",
       R"(at #/allOf/1/properties: the keyword "properties" is [2], it must be an object of schemas)"},
      {R"({"allOf": [{"properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false},
                     {"properties": {"y": {"type": "integer"}}, "required": ["y"]}]})",
       R"(no text matches, because rule "#/allOf/1/properties/y" has none: "type" is "integer", the schema is false)"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})",
       R"(no text matches: "type" is "array", "minItems" is 3, "maxItems" is 2)"},
      {R"({"type": "array", "minItems": 1, "items": {"type": "string", "format": "date", "maxLength": 4}})",
       R"(no text matches, because rule "#/items" has none: "type" is "string", "format" is "date", "maxLength" is 4)"},
      {R"({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
       R"(no text matches: "type" is "integer", "exclusiveMinimum" is 0, "exclusiveMaximum" is 1)"},
      {R"({"type": "string", "allOf": [{"minLength": 2}, {"maxLength": 1}]})",
       R"(no text matches: "type" is "string", "allOf" is there)"},
      {R"({"properties": {"a": {}}, "required": ["a", "b"], "additionalProperties": false})",
       R"(no text matches: "properties" is there, "required" is there, "additionalProperties" is false)"},
      {R"({"$ref": "other.json"})", R"(at #/$ref: the keyword "$ref" is "other.json", which is in another document)"},
      {R"({"$ref": "#/$defs/x"})", R"(at #/$ref: the keyword "$ref" is "#/$defs/x", which the document does not have)"},
      {R"({"$ref": 1})", R"(at #/$ref: the keyword "$ref" is 1, it must be a string)"},
      {R"({"$ref": "#"})", R"(at #/$ref: the keyword "$ref" is "#", which leads back to its own schema)"},
      {R"({"anyOf": [{"type": "null"}, {"not": {"$ref": "#"}}]})", "which leads back to its own schema"},
      {R"~({"pattern": "(?=a)"})~", R"~(at #/pattern: the keyword "pattern" is "(?=a)", at byte 0, "(": lookahead)~"},
      {R"({"enum": 5})", R"(at #/enum: the keyword "enum" is 5, it must be an array)"},
      {R"({"type": "float"})",
       R"(at #/type: the keyword "type" is "float", it must name types of JSON: null, boolean)"},
      {R"({"minItems": -1})",
       R"(at #/minItems: the keyword "minItems" is -1, it must be a whole number of at least 0)"},
      {R"({"minLength": 100000})", R"(at #/minLength: the keyword "minLength" is 100000, at most 10000 is supported)"},
      {R"({"required": "a"})", R"(at #/required: the keyword "required" is "a", it must be an array of strings)"},
      {R"({"$schema": "http://example.org/mine"})",
       R"(at #/$schema: the keyword "$schema" is "http://example.org/mine", which names a dialect)"},
      {R"({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}})",
       R"(no text matches, because rule "#/properties/a" has none)"},
      {R"({"type": "string", "pattern": "^.{9999}$"})", "need more than"},
      {R"({"maxProperties": 9999, "properties": {"a": true, "b": true}, "additionalProperties": true})",
       "at #: 2 properties and numbers of them up to 9999 need 30000 nodes, at most 20000 are supported"},
      {R"({"type": )", "at byte 9, the end: the schema is not valid JSON"},
      {R"({"type" "string"})", R"(at byte 15, "\"": the schema is not valid JSON)"},
      {R"({"minimum": 1e999})", "the schema has a number that is too large"},
      {"{\"type\": \"\xFF\"}", "the schema is not valid UTF-8: byte 10 of 13 is 0xff"},
      {R"([])", "at #: a schema must be an object or a boolean, and this is []"},
      {R"({"properties": {"a": 1}})", "at #/properties/a: a schema must be an object or a boolean, and this is 1"},
      {"false", "no text matches: the schema is false"},
      {std::string(1000, '['), "the schema is nested deeper than 128 levels"},
  };
  for (const auto& [schema, message] : cases) {
    EXPECT_THAT(std::string(CompileSchema(schema).status().message()), HasSubstr(message)) << schema;
  }
}

TEST(JsonSchemaTest, AnErrorOfAJoinedSchemaNamesThePlaceFromWhichItsPartComes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {"minimum": true}}}]})",
       R"(at #/allOf/1/properties/b/minimum: the keyword "minimum" is true)"},
      {R"({"allOf": [{"minItems": 1}, {"allOf": [{"type": "array"}, {"items": {"prefixItems": 2}}]}]})",
       R"(at #/allOf/1/allOf/1/items/prefixItems: the keyword "prefixItems" is 2)"},
      {R"({"maxLength": [], "anyOf": [{"minLength": 1}, {"minLength": 2}]})",
       R"(at #/maxLength: the keyword "maxLength" is [])"},
      {R"({"type": "object", "anyOf": [{"properties": {"a": {"disallow": {}}}}, {"required": ["a"]}]})",
       R"(at #/anyOf/0/properties/a/disallow: the keyword "disallow")"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"maximum": "1"}}}})",
       R"(at #/$defs/a/items/maximum: the keyword "maximum" is "1")"},
  };
  for (const auto& [schema, message] : cases) {
    EXPECT_THAT(std::string(CompileSchema(schema).status().message()), HasSubstr(message)) << schema;
  }
}

TEST(JsonSchemaTest, AnErrorShowsTheBeginningOfALongValue) {
  std::string type;
  for (int i = 0; i < 40; ++i) type += "\xC3\xA4";
  const std::string message(CompileSchema("{\"type\": \"" + type + "\"}").status().message());
  // 64 bytes would end within a character.
  EXPECT_THAT(message, HasSubstr("the keyword \"type\" is \"" + type.substr(0, 62) + "..., it must name"));
}

// Random tokens that the masks allow make values that fit, and texts that a strict parser reads.
TEST(JsonSchemaTest, RandomTextsFit) {
  TokenMasks masks(TrialVocabulary(2000, 5));
  Random random(11);
  for (const char* text : {
           R"({"type": "object", "additionalProperties": true})",
           "true",
           R"({"properties": {"name": {"type": "string", "minLength": 1, "maxLength": 9}, "tags": {"type": "array",
               "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3}, "score": {"type": "number", "minimum": -2,
               "exclusiveMaximum": 100}, "kind": {"oneOf": [{"const": "x"}, {"type": "null"}]}}, "required": ["name",
               "score"], "minProperties": 3})",
           R"({"prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": {"type": "integer"}, "minItems": 1})",
           R"({"type": "string", "pattern": "^[a-f]{2,4}|x"})",
           R"({"allOf": [{"properties": {"a": {"type": "null"}}}, {"required": ["a"]}]})",
           R"({"allOf": [{"properties": {"a": {"type": "null"}, "b": {}}, "additionalProperties": false},
                         {"properties": {"c": {"type": "null"}, "b": {"type": "null"}}, "required": ["b"]}]})",
           R"({"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "null"},
               "anyOf": [{"properties": {"b": {"type": "null"}}, "additionalProperties": false},
                         {"properties": {"a": {"type": "null"}}, "required": ["a"], "additionalProperties": true}]})",
           R"({"type": "array", "items": {"type": "integer"}, "uniqueItems": true})",
           R"({"type": "array", "items": {"type": "integer", "minimum": -30, "maximum": 3000, "multipleOf": 5},
               "uniqueItems": true, "maxItems": 6})",
           R"({"type": "array", "items": {"type": "number", "exclusiveMinimum": 0.15}, "uniqueItems": true})",
           R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "minItems": 2, "maxItems": 10})",
           R"({"type": "array", "items": {"type": "string", "format": "uuid"}, "uniqueItems": true, "maxItems": 4})",
           R"({"type": "array", "uniqueItems": true})",
           R"({"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "boolean"}], "uniqueItems": true})",
           R"({"type": "object", "properties": {"aa": {}}, "additionalProperties": {"type": "integer"},
               "minProperties": 4, "maxProperties": 5})",
           R"({"type": "object", "patternProperties": {"^[a-d]{1,2}$": {"type": "null"}, "^b": {}},
               "additionalProperties": false, "minProperties": 3})",
       }) {
    const Json schema = Json::parse(text);
    const auto automaton = CompileSchema(text);
    ASSERT_TRUE(automaton.ok()) << automaton.status();
    for (int i = 0; i < 40; ++i) {
      const auto output = RandomText(*automaton, 30, &masks, &random);
      ASSERT_TRUE(output.has_value()) << text;
      const Json value = Json::parse(*output, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(value.is_discarded()) << *output;
      EXPECT_TRUE(FitsSchema(value, schema, schema)) << *output << " for " << text;
    }
  }
}

TEST(JsonSchemaTest, OrdinaryLimitsOfLengthsCompile) {
  const auto object = [](int num_properties, const std::string& schema) {
    std::string properties;
    for (int i = 0; i < num_properties; ++i) {
      properties += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\":" + schema;
    }
    return "{\"properties\":{" + properties + "}, \"additionalProperties\": false}";
  };
  for (const std::string& schema : {object(6, R"({"type": "string", "maxLength": 255})"),
                                    object(100, R"({"type": "string", "minLength": 1, "maxLength": 255})"),
                                    object(1, R"({"type": "string", "maxLength": 6000})"),
                                    object(10, R"({"type": "array", "items": {"type": "string", "maxLength": 500}})"),
                                    object(20, R"({"format": "uri"})"), object(30, R"({"format": "email"})")}) {
    EXPECT_TRUE(CompileSchema(schema).ok()) << schema << CompileSchema(schema).status();
  }
  // Each of these strings is another part.
  std::string properties = "\"p\": true";
  for (int i = 0; i < 20; ++i) {
    properties += ",\"p" + std::to_string(i) + "\":{\"type\":\"string\",\"maxLength\":" + std::to_string(900 + i) + "}";
  }
  EXPECT_THAT(std::string(CompileSchema("{\"properties\":{" + properties + "}}").status().message()),
              HasSubstr("all of its parts together need more than"));
}

}  // namespace
}  // namespace quire::grammar
