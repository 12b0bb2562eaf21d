// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_annotations.h"

#include "gmock/gmock.h"
#include "grammar/grammar.h"
#include "gtest/gtest.h"
#include "tests/grammar/random_text.h"

namespace quire::grammar {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string WithDescription(size_t num_bytes, const std::string& more = "") {
  return R"({"type": "object", "properties": {"a": {"type": "integer", "description": ")" +
         std::string(num_bytes, 'd') + "\"" + more + "}}}";
}

TEST(SchemaAnnotationsTest, DescriptionsAreTakenOutWhereASchemaHasThem) {
  EXPECT_EQ(WithoutAnnotations(R"({"title": "t", "properties": {"title": {"description": "d", "type": "null"}},
                     "items": [{"examples": [1]}, {"$comment": "c", "default": {"type": 1}}], "x-a": 2})"),
            R"({"properties":{"title":{"type":"null"}},"items":[{},{}]})");
}

TEST(SchemaAnnotationsTest, DataWithNamesOfAnnotationsStays) {
  const std::string text = R"({"enum":[{"title":1}],"const":{"default":2},"dependentRequired":{"title":["examples"]}})";
  EXPECT_EQ(WithoutAnnotations(text), text);
}

TEST(SchemaAnnotationsTest, WhatAReferenceNamesStays) {
  const std::string text = R"({"default":{"type":"null"},"anyOf":[{"$ref":"#/default"}]})";
  EXPECT_EQ(WithoutAnnotations(text), text);
}

TEST(SchemaAnnotationsTest, ATextThatIsNoSchemaStays) {
  for (const char* text : {"{\"title\": ", "[1]", "\xFF"}) EXPECT_EQ(WithoutAnnotations(text), text);
}

TEST(SchemaAnnotationsTest, AnnotationsDoNotCountAsBytesOfAGuide) {
  const auto compiled = Compile({.kind = Source::Kind::kJsonSchema, .text = WithDescription(200'000)});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_TRUE(Matches(*compiled, R"({"a":5})"));
  EXPECT_TRUE(
      Compile({.kind = Source::Kind::kEbnf, .text = "start: \"x\" %json " + WithDescription(200'000) + "\n"}).ok());
}

TEST(SchemaAnnotationsTest, WhatHasAnEffectCounts) {
  const auto message = [](std::string text) {
    return std::string(Compile({.kind = Source::Kind::kJsonSchema, .text = std::move(text)}).status().message());
  };
  EXPECT_THAT(message(WithDescription(9, ", \"enum\": [\"" + std::string(70'000, 'e') + "\"]")),
              HasSubstr(" bytes without descriptions and other annotations, at most 65536 are allowed"));
  EXPECT_THAT(message(WithDescription(1'100'000)), HasSubstr(" bytes, at most 1048576 are allowed"));
}

TEST(SchemaAnnotationsTest, ASourceWithoutThemIsAGrammarWithTheSameTexts) {
  const Source source = {
      .kind = Source::Kind::kEbnf,
      .text = R"~(start: "{\"title\": 1}" %json {"title": "t", "properties": {"\u003a:=": {"title": "b"}},
                                     "required": ["\u003a:="]} /a/)~"};
  const Source without = WithoutAnnotations(source);
  EXPECT_THAT(without.text, Not(HasSubstr("::=")));
  EXPECT_THAT(without.text, HasSubstr(R"~(start: "{\"title\": 1}" %json {"properties":)~"));
}

}  // namespace
}  // namespace quire::grammar
