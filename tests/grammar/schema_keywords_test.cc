// SPDX-License-Identifier: Apache-2.0

// Keywords of JSON schemas: what they let through, and what not.

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "gmock/gmock.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/grammar/random_text.h"
#include "tests/grammar/schema_check.h"

namespace quire::grammar {
namespace {

using testing::HasSubstr;

// Expects that a schema allows the first texts, and not the others. A checker that follows the specification alone has
// to agree, where the texts are JSON.
void ExpectTexts(const std::string& schema, const std::vector<std::string>& texts,
                 const std::vector<std::string>& others) {
  SCOPED_TRACE(schema);
  const auto automaton = Compile({.kind = Source::Kind::kJsonSchema, .text = schema});
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  const auto document = nlohmann::ordered_json::parse(schema);
  for (const std::string& text : texts) {
    EXPECT_TRUE(Matches(*automaton, text)) << text;
    EXPECT_TRUE(FitsSchema(nlohmann::ordered_json::parse(text), document, document)) << text;
  }
  for (const std::string& text : others) {
    EXPECT_FALSE(Matches(*automaton, text)) << text;
    EXPECT_FALSE(FitsSchema(nlohmann::ordered_json::parse(text), document, document)) << text;
  }
}

std::string ErrorOfSchema(const std::string& schema) {
  return std::string(Compile({.kind = Source::Kind::kJsonSchema, .text = schema}).status().message());
}

TEST(SchemaKeywordsTest, WhatIsNotKnownHasNoEffect) {
  for (const char* schema :
       {R"({"type": "string", "example": "x"})", R"({"type": "string", "markdownDescription": "x"})",
        R"({"type": "string", "format": "uuid9"})", R"({"type": "string", "format": "password"})",
        R"({"type": "string", "nullable": false})", R"({"type": "string", "contentEncoding": "base64"})",
        R"({"type": "string", "ui:widget": {"minLength": 3}})",
        R"({"type": "string", "minLength": 1, "maxLength": 9})"}) {
    ExpectTexts(schema, {R"("ab")"}, {"1"});
  }
}

TEST(SchemaKeywordsTest, BoundsThatAreLimitsOfDoublesAreKept) {
  const auto numbers =
      Compile({.kind = Source::Kind::kJsonSchema,
               .text = R"({"type": "number", "minimum": -1.7976931348623157e308, "maximum": 1.7976931348623157e308})"});
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  for (const char* text : {"0", "-1.5", "9223372036854775807"}) EXPECT_TRUE(Matches(*numbers, text)) << text;
  for (const char* text : {"9223372036854775808", "1e5"}) EXPECT_FALSE(Matches(*numbers, text)) << text;
  ExpectTexts(R"({"type": "integer", "minimum": 9000000000000000000, "exclusiveMaximum": 1e19})",
              {"9000000000000000000"}, {"10000000000000000001", "99999999999999999999"});
  EXPECT_THAT(ErrorOfSchema(R"({"type": "number", "minimum": 1e19})"), HasSubstr("at #/minimum"));
}

TEST(SchemaKeywordsTest, AUuidHasItsVersion) {
  const auto ids = Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"type": "string", "format": "uuid4"})"});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_TRUE(Matches(*ids, R"("0123abcd-0123-4abc-8def-0123456789ab")"));
  EXPECT_FALSE(Matches(*ids, R"("0123abcd-0123-1abc-8def-0123456789ab")"));
  EXPECT_FALSE(Matches(*ids, R"("0123abcd-0123-4abc-7def-0123456789ab")"));
}

TEST(SchemaKeywordsTest, NoPropertiesComeWhereNoneIsNamed) {
  const std::vector<std::tuple<std::string, std::string, bool>> cases = {
      {R"({"type": "object", "properties": {}})", "{}", true},
      {R"({"type": "object", "properties": {}})", R"({"a": 1})", false},
      {R"({"type": "object", "properties": {}, "additionalProperties": true})", R"({"a": 1})", true},
      {R"({"type": "object", "properties": {}, "patternProperties": {"^a": {}}})", R"({"a": 1})", true},
      {R"({"type": "object", "properties": {}, "patternProperties": {"^a": {}}})", R"({"b": 1})", false},
      {R"({"type": "object", "properties": {}, "minProperties": 1})", R"({"a": 1})", true},
      {R"({"type": "object"})", R"({"a": 1})", true},
  };
  for (const auto& [schema, text, matches] : cases) {
    const auto automaton = Compile({.kind = Source::Kind::kJsonSchema, .text = schema});
    ASSERT_TRUE(automaton.ok()) << automaton.status();
    EXPECT_EQ(Matches(*automaton, text), matches) << schema << " " << text;
  }
}

TEST(SchemaKeywordsTest, MultiplesHaveAsManyDigitsAsOtherNumbers) {
  const auto integers = Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"type": "integer", "multipleOf": 7})"});
  ASSERT_TRUE(integers.ok()) << integers.status();
  EXPECT_TRUE(Matches(*integers, "-700000000000000007"));
  EXPECT_FALSE(Matches(*integers, "7000000000000000007"));
  const auto numbers =
      Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"type": "number", "multipleOf": 7, "minimum": 5})"});
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_TRUE(Matches(*numbers, "70000000000007.0"));
  EXPECT_FALSE(Matches(*numbers, "7000000000000007.0")) << "doubles tell 15 digits apart";
  EXPECT_TRUE(Matches(*numbers, "7000000000000007"));
}

TEST(SchemaKeywordsTest, MultiplesOfANumber) {
  ExpectTexts(R"({"type": "integer", "multipleOf": 1})", {"0", "-7", "12"}, {"1.5"});
  ExpectTexts(R"({"type": "integer", "multipleOf": 15, "minimum": 0, "maximum": 60})", {"0", "45", "60"}, {"7", "75"});
  ExpectTexts(R"({"type": "number", "multipleOf": 0.01})", {"0.01", "19.99", "5"}, {"0.001", "19.995"});
  ExpectTexts(R"({"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 0})", {"0.5", "100.0"}, {"0.25", "0"});
  ExpectTexts(R"({"allOf": [{"multipleOf": 4}, {"multipleOf": 6}], "type": "integer"})", {"12", "-24"},
              {"4", "6", "18"});
  EXPECT_THAT(ErrorOfSchema(R"({"type": "number", "multipleOf": 0.123456789})"),
              HasSubstr("at #: the keyword \"multipleOf\" is not supported here"));
}

TEST(SchemaKeywordsTest, PatternsOfNames) {
  ExpectTexts(R"({"type": "object", "patternProperties": {}})", {R"({"a":1})"}, {"1"});
  ExpectTexts(R"({"patternProperties": {"^s_": {"type": "string"}, "^n_": {"type": "null"}}})",
              {R"({"s_a":"x","n_":null})", "{}", R"({"n_1":null,"s_1":"y"})"}, {R"({"s_a":1})", R"({"n_a":"x"})"});
  ExpectTexts(R"({"properties": {"s_id": {"minLength": 2}}, "patternProperties": {"^s_": {"type": "string"}},
                  "additionalProperties": {"type": "integer"}})",
              {R"({"s_id":"ab","s_x":"","other":5})"}, {R"({"s_id":"a"})", R"({"s_id":5})", R"({"other":"x"})"});
  ExpectTexts(
      R"({"patternProperties": {"a": {"type": "integer"}, "b": {"maximum": 5}}, "additionalProperties": false})",
      {R"({"ab":5,"b":1,"a":9})"}, {R"({"ab":6})", R"({"c":1})"});
}

TEST(SchemaKeywordsTest, NamesOfProperties) {
  ExpectTexts(R"({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer"}})",
              {R"({"a":1,"b":2})"}, {R"({"a":"x"})"});
  ExpectTexts(R"({"propertyNames": {"enum": ["x", "y"]}, "additionalProperties": {"type": "integer"}})",
              {R"({"x":1,"y":2})", "{}", R"({"y":2})"}, {R"({"z":1})", R"({"x":null})"});
  ExpectTexts(R"({"propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}, "additionalProperties": true})",
              {R"({"abc":1,"a":null})"}, {R"({"abcd":1})", R"({"A":1})", R"({"":1})"});
  ExpectTexts(R"({"properties": {"long": {}, "a": {}}, "propertyNames": {"maxLength": 3}})", {R"({"a":1})"},
              {R"({"long":1})"});
}

TEST(SchemaKeywordsTest, PropertiesThatNeedOthers) {
  ExpectTexts(R"({"properties": {"card": {}, "address": {}, "name": {}}, "dependentRequired": {"card": ["address"]}})",
              {R"({"card":1,"address":2})", R"({"address":2})", R"({"name":1})"},
              {R"({"card":1})", R"({"card":1,"name":2})"});
  ExpectTexts(R"({"dependentRequired": {"bar": ["foo"]}, "type": "object"})", {R"({"bar":1,"foo":2})", R"({"x":1})"},
              {R"({"bar":1})"});
  ExpectTexts(R"({"properties": {"a": {}, "b": {}}, "dependentSchemas": {"a": {"properties": {"b": {"minimum": 3}}}}})",
              {R"({"a":1,"b":3})", R"({"b":1})"}, {R"({"a":1,"b":2})"});
}

TEST(SchemaKeywordsTest, PatternsWithLengths) {
  ExpectTexts(R"({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3})", {R"("a")", R"("abc")"},
              {R"("")", R"("abcd")", R"("aB")"});
  ExpectTexts(R"({"type": "string", "pattern": "a", "minLength": 2})", {R"("ba")", R"("a\n")"}, {R"("a")", R"("bb")"});
  ExpectTexts(R"({"type": "string", "pattern": "\\bcat\\b", "maxLength": 7})", {R"("a cat")"},
              {R"("cats")", R"("concat")"});
  ExpectTexts(R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}], "type": "string"})", {R"("ab")", R"("b-a")"},
              {R"("a")"});
  const auto email = Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"format": "email", "maxLength": 9})"});
  EXPECT_TRUE(Matches(*email, R"("a@bb.org")"));
  EXPECT_FALSE(Matches(*email, R"("aaa@bb.org")"));
}

TEST(SchemaKeywordsTest, Conditions) {
  const std::string schema = R"({"type": "object", "properties": {"kind": {"enum": ["card", "cash"]}, "number": {}},
      "required": ["kind"], "if": {"properties": {"kind": {"const": "card"}}}, "then": {"required": ["number"]},
      "else": {"not": {"required": ["number"]}}})";
  ExpectTexts(schema, {R"({"kind":"card","number":1})", R"({"kind":"cash"})"},
              {R"({"kind":"card"})", R"({"kind":"cash","number":1})", R"({"kind":"x"})"});
  ExpectTexts(R"({"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 5}})", {"3", "10", "15"}, {"11"});
}

TEST(SchemaKeywordsTest, WhatAValueIsNot) {
  ExpectTexts(R"({"type": "integer", "not": {"const": 5}, "minimum": 4, "maximum": 6})", {"4", "6"}, {"5"});
  ExpectTexts(R"({"not": {"enum": [1, 2.5]}, "type": "number"})", {"1.5", "2", "-1"}, {"1", "2.5", "1.0"});
  ExpectTexts(R"({"type": "string", "not": {"enum": ["a", "b"]}})", {R"("ab")", R"("")"}, {R"("a")"});
  ExpectTexts(R"({"type": "string", "not": {"pattern": "^x"}})", {R"("ax")"}, {R"("xa")"});
  ExpectTexts(R"({"not": {"type": ["string", "object"]}})", {"1", "[1]", "null", "true"}, {R"("a")", "{}"});
  ExpectTexts(R"({"properties": {"a": {}, "b": {}}, "not": {"required": ["a", "b"]}})",
              {R"({"a":1})", R"({"b":1})", "{}"}, {R"({"a":1,"b":2})"});
  ExpectTexts(R"({"type": "array", "items": {"type": "integer"}, "not": {"const": [1, 2]}})",
              {"[1]", "[2,1]", "[1,2,3]"}, {"[1,2]"});
  EXPECT_THAT(ErrorOfSchema(R"({"type": "object", "not": {"patternProperties": {"a": false}}})"),
              HasSubstr("at #/not/patternProperties: the keyword \"patternProperties\" is {\"a\":false}, and where"));
  EXPECT_EQ(ErrorOfSchema(R"({"not": {}})"), R"(no text matches: "not" is there)");
}

TEST(SchemaKeywordsTest, ExactlyOneOfSeveral) {
  ExpectTexts(R"({"type": "integer", "oneOf": [{"multipleOf": 3}, {"minimum": 10}]})", {"3", "11"}, {"4", "12"});
  ExpectTexts(
      R"({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
      {R"({"a":1})", R"({"b":1})"}, {"{}", R"({"a":1,"b":1})"});
  ExpectTexts(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", {"1.5", "0.25"}, {"1"});
  ExpectTexts(R"({"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 2}]})",
              {R"("a")", R"("abcd")"}, {R"("ab")"});
}

TEST(SchemaKeywordsTest, AllOfSeveral) {
  ExpectTexts(R"({"allOf": [{"minimum": 1}, {"minimum": 2}, {"maximum": 4}], "type": "integer"})", {"2", "4"},
              {"1", "5"});
  ExpectTexts(R"({"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"maximum": 3}}}]})",
              {R"({"a":2})"}, {R"({"a":0})", R"({"a":4})"});
  ExpectTexts(R"({"$ref": "#/$defs/a", "maximum": 5, "$defs": {"a": {"type": "integer", "minimum": 3}}})", {"4"},
              {"2", "6"});
  ExpectTexts(R"({"anyOf": [{"type": "string"}, {"type": "array"}], "allOf": [{"maxLength": 1}, {"maxItems": 0}]})",
              {R"("a")", "[]"}, {R"("ab")", "[1]", "1"});
}

TEST(SchemaKeywordsTest, ConstantsBesideOtherKeywords) {
  ExpectTexts(R"({"enum": ["a", "abc", 5, null, [1], {"b": 1}], "maxLength": 2, "minItems": 2})",
              {R"("a")", "5", "null", R"({"b":1})"}, {R"("abc")", "[1]"});
  ExpectTexts(R"({"type": "integer", "enum": [1, 2.0, 2.5, "x"]})", {"1", "2.0"}, {"2.5", R"("x")"});
  ExpectTexts(R"({"enum": [1, 2, 3], "const": 2})", {"2"}, {"1", "3"});
  ExpectTexts(R"({"enum": ["a1", "b2"], "pattern": "^a"})", {R"("a1")"}, {R"("b2")"});
}

TEST(SchemaKeywordsTest, ItemsThatAnArrayContains) {
  ExpectTexts(R"({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}})", {"[5]", "[1,6,2]"},
              {"[]", "[1,2]"});
  ExpectTexts(
      R"({"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}, "minContains": 2,
            "maxContains": 3})",
      {"[1,1]", "[1,2,1,1]"}, {"[1]", "[1,1,1,1]"});
  ExpectTexts(R"({"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}, "minContains": 0})",
              {"[]", "[1]"}, {R"(["a"])"});
  ExpectTexts(R"({"type": "array", "prefixItems": [{"const": 1}], "not": {"items": {"type": "integer"}}})",
              {R"([1,"a"])"}, {"[1]", "[1,2]"});
}

TEST(SchemaKeywordsTest, ItemsThatAreDifferent) {
  ExpectTexts(R"({"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": true, "minItems": 1})",
              {R"(["a"])", R"([1,"b","a"])", R"(["b", "a"])"}, {"[]", R"(["a","a"])", R"([1,"a",1])"});
  ExpectTexts(R"({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true})", {"[]", "[false,true]"},
              {"[true,true]"});
  ExpectTexts(
      R"({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 30},
            "uniqueItems": true, "maxItems": 2})",
      {"[]", "[3,17]"}, {"[3,3]", "[1,2,3]", "[31]"});
  ExpectTexts(R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 1})", {R"(["x"])"},
              {R"(["x","x"])"});
  ExpectTexts(R"({"type": "array", "items": {"type": "string"}, "uniqueItems": false})", {R"(["x","x"])"}, {"[1]"});
}

TEST(SchemaKeywordsTest, ManyItemsThatAreDifferentAscend) {
  const std::string strings = R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true)";
  for (const char* more : {"}", ", \"maxItems\": 4}", ", \"maxItems\": 20}", ", \"maxItems\": 1000}"}) {
    ExpectTexts(strings + more, {"[]", R"(["red"])", R"(["","a","blue","é"])"}, {R"(["a","a"])", R"(["b","c","b"])"});
  }
  ExpectTexts(strings + ", \"minItems\": 2, \"maxItems\": 3}", {R"(["a","b"])", R"(["a","b","c"])"},
              {R"(["a"])", R"(["a","b","c","d"])"});
  ExpectTexts(R"({"type": "array", "items": {"type": "integer"}, "uniqueItems": true})",
              {"[]", "[-5,0,1,2,3,10,99,105,2024,70000]"}, {"[1,1]", "[-5,-5]", "[3,105,105]"});
  ExpectTexts(R"({"type": "array", "items": {"type": "integer"}, "uniqueItems": true, "maxItems": 5})",
              {"[1,2,3]", "[0,1,2,3,4]"}, {"[0,1,2,3,4,5]", "[2,2]"});
  ExpectTexts(R"({"type": "array", "items": {"type": "integer", "minimum": 5}, "uniqueItems": true})", {"[5,6,70]"},
              {"[4]", "[6,6]"});
  ExpectTexts(R"({"type": "array", "items": {"type": "number"}, "uniqueItems": true})", {"[0.25,0.5,1.0,2.75]"},
              {"[1,1.0]", "[0.5,0.50]"});
  ExpectTexts(R"({"type": "array", "uniqueItems": true})", {R"(["a","b",1,2,true,null])", "[]"},
              {"[1,1]", "[null,null]"});
}

TEST(SchemaKeywordsTest, ItemsOfAPrefixAreDifferentIfTheyAreFew) {
  const std::string prefix =
      R"({"type": "array", "prefixItems": [{"type": "boolean"}, {"enum": [true, "a"]}], "uniqueItems": true)";
  ExpectTexts(prefix + "}", {"[]", "[false]", "[false,true]", R"([true,"a"])"}, {"[true,true]", R"(["a"])"});
  ExpectTexts(prefix + R"(, "items": {"const": false}})", {"[true,\"a\",false]", "[false,true]"},
              {"[false,true,false]"});
  EXPECT_THAT(ErrorOfSchema(prefix + ", \"minItems\": 3}"), HasSubstr("the keyword \"uniqueItems\" is true, which is"));
}

TEST(SchemaKeywordsTest, ItemsThatCannotBeComparedAreRefused) {
  for (const char* item : {R"({"type": "object"})", R"({"type": "array"})"}) {
    EXPECT_THAT(ErrorOfSchema(absl::StrCat(R"({"type": "array", "uniqueItems": true, "items": )", item, "}")),
                HasSubstr("at #/uniqueItems: the keyword \"uniqueItems\" is true, which is supported for items of"));
  }
  EXPECT_THAT(ErrorOfSchema(R"({"type": "array", "uniqueItems": true, "items": {"type": "string"}, "minItems": 500})"),
              HasSubstr("is true, and at least 500 different items are asked for, at most "));
}

TEST(SchemaKeywordsTest, LimitsMayBeLarge) {
  const auto matches = [](const std::string& schema, const std::string& text) {
    const auto automaton = Compile({.kind = Source::Kind::kJsonSchema, .text = schema});
    EXPECT_TRUE(automaton.ok()) << automaton.status();
    if (!automaton.ok()) return false;
    Matcher matcher(*automaton);
    for (size_t i = 0; i < text.size(); i += 1000) {  // As tokens, which have a limit of steps.
      if (!matcher.Accept(std::string_view(text).substr(i, 1000))) return false;
    }
    return matcher.can_end();
  };
  const auto text = [](size_t size) { return "\"" + std::string(size, 'a') + "\""; };
  const std::string length = R"({"type": "string", "minLength": 3000, "maxLength": 70000})";
  for (const size_t size : {3000, 3072, 4096, 69632, 69999, 70000}) EXPECT_TRUE(matches(length, text(size))) << size;
  for (const size_t size : {0, 1024, 2999, 70001}) EXPECT_FALSE(matches(length, text(size))) << size;
  EXPECT_TRUE(matches(R"({"type": "string", "minLength": 5000})", text(5000)));
  EXPECT_FALSE(matches(R"({"type": "string", "minLength": 5000})", text(4999)));
  EXPECT_TRUE(matches(R"({"type": "string", "maxLength": 2147483647})", text(3)));
  EXPECT_TRUE(matches(R"({"type": "string", "pattern": "^a", "maxLength": 2147483647})", text(3)));
  const auto list = [](size_t size) {
    std::string items = "[1";
    while (size-- > 1) items += ",1";
    return items + "]";
  };
  const std::string items =
      R"({"type": "array", "prefixItems": [{"const": 1}], "items": {"type": "integer"}, "maxItems": 5000})";
  for (const size_t size : {1, 1024, 1025, 5000}) EXPECT_TRUE(matches(items, list(size))) << size;
  EXPECT_FALSE(matches(items, list(5001)));
  EXPECT_FALSE(matches(items, "[2]"));
  EXPECT_TRUE(matches(R"({"type": "array", "items": {"type": "null"}, "maxItems": 4294967295})", "[null,null]"));
  EXPECT_TRUE(matches(R"({"properties": {"a": {"type": "null"}}, "maxProperties": 4294967295})", R"({"a":null})"));
  // A string of a million characters and more is not written, so nothing is left where one must be as long.
  EXPECT_TRUE(matches(R"({"type": ["string", "null"], "not": {"type": "string", "maxLength": 65536}})", "null"));
}

TEST(SchemaKeywordsTest, PropertiesWithOtherNamesAreCountedByTheirNames) {
  ExpectTexts(R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 3})",
              {R"({"a":1,"b":2,"c":3})", R"({"a":1,"b":2,"c":3,"d":4})"}, {"{}", R"({"a":1,"b":2})"});
  ExpectTexts(R"({"properties": {"x": {"type": "integer"}}, "additionalProperties": {"type": "null"},
                  "minProperties": 2, "maxProperties": 3})",
              {R"({"x":1,"b":null})", R"({"a":null,"b":null,"c":null})"},
              {R"({"x":1})", R"({"a":null,"b":null,"c":null,"d":null})"});
  const auto automaton =
      Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"additionalProperties": true, "minProperties": 2})"});
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_FALSE(Matches(*automaton, R"({"a":1,"a":2})")) << "it has one property";
  EXPECT_THAT(ErrorOfSchema(R"({"additionalProperties": true, "minProperties": 100})"),
              HasSubstr("the keyword \"minProperties\" is 100, which is too many where other properties may come"));
}

TEST(SchemaKeywordsTest, AtMostAThousandListedItemsAreDifferent) {
  const auto schema = [](int num_values) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (int i = 0; i < num_values; ++i) values.push_back(i);
    return nlohmann::ordered_json{{"type", "array"}, {"items", {{"enum", values}}}, {"uniqueItems", true}}.dump();
  };
  EXPECT_THAT(ErrorOfSchema(schema(1000)),
              HasSubstr("and 1000 values or kinds of values, with numbers of items up to 1, need"))
      << "another limit is reached";
  EXPECT_THAT(ErrorOfSchema(schema(1001)),
              HasSubstr("at #/uniqueItems: the keyword \"uniqueItems\" is true, and 1001 values are listed for the "
                        "items, at most 1000 are supported"));
}

TEST(SchemaKeywordsTest, PatternsWithTooManyRangesAreRefused) {
  std::string characters = "[";
  for (char32_t c = 0x4E00; c < 0x4E00 + 10'000; c += 2) AppendUtf8(c, &characters);
  characters += "]";
  const auto schema = [&](const std::string& end) {
    return nlohmann::ordered_json{{"type", "string"}, {"minLength", 1}, {"pattern", "^" + characters + end}}.dump();
  };
  EXPECT_THAT(ErrorOfSchema(schema("{0,10000}$")), HasSubstr("it needs more than 200000 ranges of characters"));
  EXPECT_THAT(ErrorOfSchema(schema("$")), HasSubstr("more than 500000 steps of compilation"));
}

TEST(SchemaKeywordsTest, SchemasWithNames) {
  ExpectTexts(
      R"({"type": "object", "properties": {"a": {"type": "null"}}, "not": {"properties": {"b": {}},
            "required": ["b"]}})",
      {R"({"a":null})"}, {R"({"a":1})"});
  const auto automaton = Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"$id": "http://example.org/root.json",
      "properties": {"a": {"$ref": "item.json"}, "b": {"$ref": "#word"}, "c": {"$ref": "item.json#/$defs/n"}},
      "$defs": {"i": {"$id": "item.json", "type": "integer", "$defs": {"n": {"type": "null"}}},
                "w": {"$anchor": "word", "type": "string"}}})"});
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Matches(*automaton, R"({"a":1,"b":"x","c":null})"));
  EXPECT_FALSE(Matches(*automaton, R"({"a":"x"})"));
}

TEST(SchemaKeywordsTest, TheDynamicAnchorOfTheRootCounts) {
  const auto automaton = Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"$id": "http://example.org/strict",
      "$ref": "list", "$defs": {"word": {"$dynamicAnchor": "item", "type": "string"},
          "list": {"$id": "list", "type": "array", "items": {"$dynamicRef": "#item"},
                   "$defs": {"any": {"$dynamicAnchor": "item", "type": ["string", "integer"]}}}}})"});
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Matches(*automaton, R"(["a"])"));
  EXPECT_FALSE(Matches(*automaton, "[1]"));
}

TEST(SchemaKeywordsTest, WhatAcceptsEverythingCannotBreak) {
  for (const char* keyword :
       {R"("patternProperties": {"b": true})", R"("unevaluatedProperties": true)", R"("propertyNames": {})"}) {
    const auto automaton =
        Compile({.kind = Source::Kind::kJsonSchema,
                 .text = absl::StrCat(
                     R"({"type": "object", "properties": {"a": {"type": "null"}}, "not": {"required": ["a"], )",
                     keyword, "}}")});
    ASSERT_TRUE(automaton.ok()) << automaton.status();
    EXPECT_TRUE(Matches(*automaton, "{}")) << keyword;
    EXPECT_FALSE(Matches(*automaton, R"({"a":null})")) << keyword;
  }
}

TEST(SchemaKeywordsTest, ReferencesMayHaveDots) {
  for (const char* reference : {"./item.json", "../folder/item.json", "x/../item.json", "/folder/./item.json"}) {
    const std::string schema =
        absl::StrCat(R"({"$id": "http://example.org/folder/root.json", "properties": {"a": {"$ref": ")", reference,
                     R"("}}, "$defs": {"i": {"$id": "./item.json", "type": "integer"}}})");
    const auto automaton = Compile({.kind = Source::Kind::kJsonSchema, .text = schema});
    ASSERT_TRUE(automaton.ok()) << automaton.status();
    EXPECT_TRUE(Matches(*automaton, R"({"a":1})")) << reference;
    EXPECT_FALSE(Matches(*automaton, R"({"a":null})")) << reference;
  }
}

TEST(SchemaKeywordsTest, WhatNoOtherSchemaEvaluates) {
  const auto matches = [](const std::string& schema, const std::string& text) {
    const auto automaton = Compile({.kind = Source::Kind::kJsonSchema, .text = schema});
    EXPECT_TRUE(automaton.ok()) << automaton.status();
    return automaton.ok() && Matches(*automaton, text);
  };
  const std::string object =
      R"({"type": "object", "properties": {"a": {"type": "null"}}, "unevaluatedProperties": false,
      "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]}, {"properties": {"c": {}},
            "required": ["c"]}, {}]})";
  for (const char* text : {"{}", R"({"a":null,"b":1})", R"({"b":1,"c":2})", R"({"c":2})"}) {
    EXPECT_TRUE(matches(object, text)) << text;
  }
  for (const char* text : {R"({"b":2})", R"({"x":1})", R"({"a":null,"b":2})"})
    EXPECT_FALSE(matches(object, text)) << text;
  const std::string typed =
      R"({"allOf": [{"properties": {"a": {"type": "null"}}}], "unevaluatedProperties": {"type": "integer"}})";
  EXPECT_TRUE(matches(typed, R"({"a":null,"x":1})"));
  EXPECT_FALSE(matches(typed, R"({"a":null,"x":"y"})"));
  const std::string array = R"({"type": "array", "prefixItems": [{"type": "null"}], "unevaluatedItems": false,
      "if": {"prefixItems": [true, {"const": 1}]}})";
  for (const char* text : {"[]", "[null]", "[null,1]"}) EXPECT_TRUE(matches(array, text)) << text;
  for (const char* text : {"[1]", "[null,2]", "[null,1,1]"}) EXPECT_FALSE(matches(array, text)) << text;
  const std::string contains = R"({"type": "array", "prefixItems": [{"type": "null"}], "contains": {"type": "string"},
      "unevaluatedItems": false})";
  for (const char* text : {R"([null,"a"])", R"([null,"a","b"])"}) EXPECT_TRUE(matches(contains, text)) << text;
  for (const char* text : {"[null]", R"([null,"a",1])"}) EXPECT_FALSE(matches(contains, text)) << text;
  EXPECT_THAT(ErrorOfSchema(R"({"type": "object", "not": {"unevaluatedProperties": false}})"),
              HasSubstr("at #/not/unevaluatedProperties: the keyword \"unevaluatedProperties\" is false, and where"));
}

bool MatchesSchema(const std::string& schema, const std::string& text) {
  const auto automaton = Compile({.kind = Source::Kind::kJsonSchema, .text = schema});
  EXPECT_TRUE(automaton.ok()) << automaton.status();
  return automaton.ok() && Matches(*automaton, text);
}

TEST(SchemaKeywordsTest, OlderDialects) {
  const std::string tuple = R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
      "items": [{"type": "null"}, {"type": "integer"}], "additionalItems": {"type": "string"}})";
  EXPECT_TRUE(MatchesSchema(tuple, R"([null,1,"a"])"));
  EXPECT_FALSE(MatchesSchema(tuple, R"([null,1,1])"));
  const std::string reference = R"({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a",
      "type": "null", "definitions": {"a": {"type": "integer"}}})";
  EXPECT_TRUE(MatchesSchema(reference, "1"));
  EXPECT_FALSE(MatchesSchema(reference, "null"));
}

// The checker of schemas does not know this draft.
TEST(SchemaKeywordsTest, BeforeDraft2019AnIdWithoutAPathIsAnAnchor) {
  const auto schema = [](const std::string& draft, const std::string& id) {
    return R"({"$schema": "http://json-schema.org/)" + draft + R"(/schema#", "type": "array", "minItems": 1,
        "maxItems": 1, "items": {"$ref": "#z"}, "definitions": {"a": {")" +
           id + R"(": "#z", "enum": ["z"]}}})";
  };
  for (const auto& [draft, id] : {std::pair("draft-04", "id"), {"draft-06", "$id"}, {"draft-07", "$id"}}) {
    EXPECT_TRUE(MatchesSchema(schema(draft, id), R"(["z"])")) << draft;
    EXPECT_FALSE(MatchesSchema(schema(draft, id), R"(["a"])")) << draft;
  }
}

TEST(SchemaKeywordsTest, InDraft4ABooleanExcludesABound) {
  const std::string draft = R"({"$schema": "http://json-schema.org/draft-04/schema#", )";
  const auto expect = [&](const std::string& keywords, const std::vector<std::string>& texts,
                          const std::vector<std::string>& others) {
    SCOPED_TRACE(keywords);
    for (const std::string& text : texts) EXPECT_TRUE(MatchesSchema(draft + keywords, text)) << text;
    for (const std::string& text : others) EXPECT_FALSE(MatchesSchema(draft + keywords, text)) << text;
  };
  expect(R"("type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 4, "exclusiveMaximum": true})",
         {"2", "3"}, {"1", "4"});
  expect(R"("type": "integer", "minimum": 1, "exclusiveMinimum": false, "maximum": 4, "exclusiveMaximum": false})",
         {"1", "4"}, {"0", "5"});
  expect(R"("type": "array", "items": {"$ref": "#/definitions/a"}, "minItems": 1, "maxItems": 1,
      "definitions": {"a": {"type": "integer", "not": {"minimum": 0, "exclusiveMinimum": true}, "minimum": -1}}})",
         {"[0]", "[-1]"}, {"[1]", "[-2]"});
  expect(R"("type": "integer", "minimum": -1, "maximum": 1, "not": {"maximum": 0, "exclusiveMaximum": true}})",
         {"0", "1"}, {"-1"});
  expect(R"("enum": [1, 2], "minimum": 1, "exclusiveMinimum": true})", {"2"}, {"1"});
  expect(R"("enum": [1.0, 2], "type": "integer"})", {"2"}, {"1.0"});
  expect(R"("id": "http://a/b", "properties": {"exclusiveMinimum": {"$ref": "b#/definitions/x"}},
      "required": ["exclusiveMinimum"], "definitions": {"x": {"enum": [true]}}})",
         {R"({"exclusiveMinimum":true})"}, {"{}", R"({"exclusiveMinimum":false})"});
}

TEST(SchemaKeywordsTest, ABooleanBelongsToDraft4AndANumberToTheOthers) {
  const std::string draft = R"({"$schema": "http://json-schema.org/draft-04/schema#", )";
  EXPECT_THAT(ErrorOfSchema(draft + R"("type": "integer", "exclusiveMinimum": true})"),
              HasSubstr("the keyword \"exclusiveMinimum\" is true, it needs \"minimum\" beside it"));
  EXPECT_THAT(
      ErrorOfSchema(draft + R"("type": "integer", "minimum": 1, "exclusiveMinimum": 5})"),
      HasSubstr("the keyword \"exclusiveMinimum\" is 5, it must be a boolean, because \"$schema\" names draft 4"));
  EXPECT_THAT(
      ErrorOfSchema(R"({"type": "integer", "maximum": 5, "exclusiveMaximum": true})"),
      HasSubstr("the keyword \"exclusiveMaximum\" is true, it must be a number, unless \"$schema\" names draft 4"));
  EXPECT_THAT(ErrorOfSchema(R"({"items": {"$schema": "http://json-schema.org/draft-04/schema#"}, "type": "array"})"),
              HasSubstr("draft-04/schema#\", which is supported for a whole document only"));
}

TEST(SchemaKeywordsTest, TooManyCasesAreRefused) {
  std::string schema = R"({"type": "object", "allOf": [)";
  for (int i = 0; i < 12; ++i) {
    schema += (i > 0 ? "," : "") + std::string(R"({"anyOf": [{"required": ["a)") + std::to_string(i) +
              R"("]}, {"required": ["b)" + std::to_string(i) + R"("]}]})";
  }
  EXPECT_THAT(ErrorOfSchema(schema + "]}"), HasSubstr("come to more than 500 cases together"));
}

TEST(SchemaKeywordsTest, ValuesThatAreNotWrittenAreNoReasonToSayThatNoneFits) {
  EXPECT_THAT(ErrorOfSchema(R"({"properties": {"a": {}}, "minProperties": 2})"),
              HasSubstr("at #: values that fit are not written, because beside the keyword \"properties\" they need"));
}

}  // namespace
}  // namespace quire::grammar
