// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/bare_object.h"

#include <string>

#include "gateway/openai/bare_grammar.h"
#include "gateway/openai/schema_document.h"
#include "gmock/gmock.h"
#include "grammar/grammar.h"
#include "gtest/gtest.h"
#include "tests/grammar/random_text.h"
#include "tests/grammar/schema_check.h"
#include "tests/random.h"

namespace quire {
namespace {

constexpr char kQuote[] = "<|\"|>";

// Translates a text, which must give the same in one piece and byte by byte.
std::string Translated(absl::string_view text, const ParameterTypes* types = nullptr) {
  BareObject object(kQuote);
  object.Reset(types);
  std::string whole;
  const size_t num_bytes = object.Add(text, /*is_last=*/true, &whole);
  object.Reset(types);
  std::string by_bytes;
  std::string pending;
  for (size_t i = 0; i < num_bytes; ++i) {
    pending += text[i];
    pending.erase(0, object.Add(pending, /*is_last=*/i + 1 == num_bytes, &by_bytes));
  }
  EXPECT_EQ(by_bytes, whole) << text;
  return whole;
}

TEST(BareObjectTest, AnObjectBecomesJson) {
  EXPECT_EQ(Translated(R"({a:1,s:<|"|>x "y" {z},\<|"|>,l:[true,null,[],{}],o:{k:-1.5e3}})"),
            R"({"a": 1, "s": "x \"y\" {z},\\", "l": [true, null, [], {}], "o": {"k": -1.5e3}})");
  EXPECT_EQ(Translated("{}"), "{}");
  EXPECT_EQ(Translated("{s:<|\"|>a\nb<|\"|>}"), R"({"s": "a\nb"})");
  EXPECT_EQ(Translated(R"({<|"|>a key<|"|>:<|"|><|"|>})"), R"({"a key": ""})");
}

TEST(BareObjectTest, TheObjectEndsAtItsBracket) {
  BareObject object(kQuote);
  std::string json;
  EXPECT_EQ(object.Add("{a:{b:<|\"|>}<|\"|>}} rest", /*is_last=*/false, &json), 19u);
  EXPECT_TRUE(object.is_complete());
  EXPECT_EQ(json, R"({"a": {"b": "}"}})");
}

TEST(BareObjectTest, AStringComesAsItsTextComes) {
  BareObject object(kQuote);
  std::string json;
  EXPECT_EQ(object.Add("{s:<|\"|>one t<|", /*is_last=*/false, &json), 13u) << "the tag may follow";
  EXPECT_EQ(json, R"({"s": "one t)");
}

TEST(BareObjectTest, TheSchemaTellsTheTypesOfBareValues) {
  const ParameterTypes types = {{"n", kNumberType}, {"s", kStringType}, {"u", kStringType | kNumberType}};
  EXPECT_EQ(Translated("{n:7,s:7,u:7,b:True,x:some text}", &types),
            R"({"n": 7, "s": "7", "u": 7, "b": true, "x": "some text"})");
  EXPECT_EQ(Translated("{o:{s:7}}", &types), R"({"o": {"s": 7}})") << "a member of another object";
}

TEST(BareObjectTest, OtherWritingsAreRead) {
  EXPECT_EQ(Translated(R"({ "a" : "x\"y" , b : [ 1 , ] , })"), R"({"a": "x\"y", "b": [1]})");
  EXPECT_EQ(Translated(R"({a:<|"|>x<|"|>b:2})"), R"({"a": "x", "b": 2})") << "the comma is missing";
  EXPECT_EQ(Translated("{a:,b}"), R"({"a": "", "b": null})");
  EXPECT_EQ(Translated("{\"a\":\"x\ny\"}"), R"({"a": "x\ny"})");
}

TEST(BareObjectTest, WhatIsCutIsGivenOut) {
  EXPECT_EQ(Translated("{a:<|\"|>x<|"), R"({"a": "x<|)");
  EXPECT_EQ(Translated("{a:12"), R"({"a": "12)");
  EXPECT_EQ(Translated("{a:1,key"), R"({"a": 1, "key)");
}

// The vocabulary has bytes, the tag as text, and the tag as a special token.
std::shared_ptr<const grammar::TokenTable> Vocabulary() {
  std::vector<std::string> tokens = {"", ""};
  for (int byte = 0; byte < 255; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back(kQuote);
  tokens.push_back(grammar::SpecialTokenBytes(kQuote));
  return std::make_shared<grammar::TokenTable>(std::move(tokens), std::vector<TokenId>{1});
}

TEST(BareGrammarTest, ItsTextsBecomeValuesOfTheSchema) {
  const char* const schemas[] = {
      R"({"type": "object", "required": ["s", "o"], "properties": {
          "s": {"type": "string", "maxLength": 5, "minLength": 2}, "e": {"enum": ["x", "a b", 7, null, {"k": ["<"]}]},
          "o": {"type": "object", "required": ["in"], "properties": {
              "in": {"type": "integer", "minimum": 3, "maximum": 12}, "a key": {"type": ["boolean", "null"]},
              "": {"const": ""}}}}})",
      R"({"type": "object", "required": ["l", "m"], "properties": {
          "l": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "minItems": 2, "maxItems": 4},
          "m": {"type": "array", "items": {"type": "number"}, "minItems": 3},
          "n": {"type": "array", "items": {"type": "boolean"}, "maxItems": 1}},
          "$defs": {"tree": {"type": "object", "required": ["name"], "properties": {
              "name": {"type": "string", "maxLength": 3},
              "below": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}}}}})",
      R"({"type": "object", "required": ["a", "b"], "allOf": [
          {"properties": {"a": {"type": "boolean"}}}, {"$ref": "#/$defs/b"}],
          "$defs": {"b": {"required": ["b"], "properties": {"b": {"oneOf": [{"const": 1}, {"const": "one"}]}}}}})",
      R"({"type": "object", "properties": {"any": {}, "list": {"type": "array"}, "object": {"type": "object"}}})",
      R"({"type": "object", "properties": {}, "additionalProperties": false})",
  };
  Random random(3);
  for (const char* const text : schemas) {
    const Json schema = Json::parse(text);
    SchemaDocument document(schema);
    BareGrammar bare(kQuote, 1 << 16);
    const std::string start = "start:" + bare.Root(&document) + "\n";
    const std::string source = start + bare.Rules();
    const auto automaton = grammar::Compile({.kind = grammar::Source::Kind::kEbnf, .text = source});
    ASSERT_TRUE(automaton.ok()) << automaton.status() << "\n" << source;
    grammar::TokenMasks masks(Vocabulary());
    for (int i = 0; i < 200; ++i) {
      std::optional<std::string> value = grammar::RandomText(*automaton, 120, &masks, &random);
      ASSERT_TRUE(value.has_value());
      std::erase(*value, '\xFF');  // The marks of special tokens.
      const Json json = Json::parse(Translated(*value), nullptr, /*allow_exceptions=*/false);
      EXPECT_TRUE(!json.is_discarded() && grammar::FitsSchema(json, schema, schema)) << *value << "\n" << json;
    }
  }
}

TEST(BareGrammarTest, SchemasThatReferToThemselvesEnd) {
  const Json schema = Json::parse(R"({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}})");
  SchemaDocument document(schema);
  BareGrammar bare(kQuote, 1 << 16);
  bare.Root(&document);
  EXPECT_LT(bare.Rules().size(), 1u << 17);
}

}  // namespace
}  // namespace quire
