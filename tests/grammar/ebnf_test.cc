// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grammar/grammar.h"
#include "gtest/gtest.h"
#include "tests/grammar/random_text.h"

namespace quire::grammar {
namespace {

using testing::HasSubstr;

absl::StatusOr<std::shared_ptr<const Automaton>> CompileGrammar(const std::string& text) {
  return Compile({.kind = Source::Kind::kEbnf, .text = text});
}

TEST(EbnfTest, ReadsGbnf) {
  const auto automaton = CompileGrammar(R"~(
    # An expression with brackets.
    root  ::= term (("+" | "-") term)*
    term  ::= [0-9]+ | name{1,2} | "(" root ")"
    name  ::= [a-z_] [^()+-]? "\x21"
  )~");
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  for (const char* text : {"1", "12+34", "((1)-a!)+bc!", "a!b!"}) EXPECT_TRUE(Matches(*automaton, text)) << text;
  for (const char* text : {"", "1+", "(1", "a", "a!b!c!", "1)"}) EXPECT_FALSE(Matches(*automaton, text)) << text;
}

TEST(EbnfTest, ReadsLark) {
  const auto automaton = CompileGrammar(R"(
    start: select_statement
    ?select_statement: "SELECT" WS column ["AS" WS column] "from" ~ 1..2
    column: NAME | "a".."c"
    NAME: /[x-z]+/   // A terminal.
    WS: " "
  )");
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Matches(*automaton, "SELECT xyfrom"));
  EXPECT_TRUE(Matches(*automaton, "SELECT bAS zfromfrom"));
  EXPECT_FALSE(Matches(*automaton, "SELECT dfrom"));
}

TEST(EbnfTest, LarkMayHaveJsonSchemas) {
  const auto automaton = CompileGrammar(R"(start: "call " args ("," args)* | %json {"const": "} # \""} "!"
    args: %json {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"],
                 "$defs": {"n": {"type": "integer"}}}  # A comment.
  )");
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Matches(*automaton, R"(call {"a": 5},{"a":-1})"));
  EXPECT_TRUE(Matches(*automaton, R"("} # \""!)"));
  EXPECT_FALSE(Matches(*automaton, R"(call {"a": "5"})"));
}

TEST(EbnfTest, CallsRulesWithinEachOther) {
  const auto automaton = CompileGrammar(R"(root ::= "a" root "b" | "c" | list
list ::= "[" (list ",")* "]")");
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Matches(*automaton, "aacbb"));
  EXPECT_FALSE(Matches(*automaton, "aacb"));
  EXPECT_FALSE(Matches(*automaton, "aacbbb"));
  EXPECT_TRUE(Matches(*automaton, "a[[],[[],],]b"));
  EXPECT_FALSE(Matches(*automaton, "a[[],[[],]]b"));
}

TEST(EbnfTest, RefusesWhatItDoesNotSupportWithThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"start ::= \"a\"", "the rule \"root\", with which the text begins, is missing"},
      {"root ::= item", "at byte 9: the rule \"item\" is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "at byte 13: the rule \"root\" is defined twice"},
      {"root ::= root \"a\" | \"b\"", "rule \"root\" is left-recursive"},
      {"root ::= a\na ::= b? root | \"y\"\nb ::= \"x\"", "is left-recursive"},
      {"root ::= \"a", "at byte 9: the literal does not end"},
      {"root ::= (\"a\"", "at byte 9: the \"(\" has no"},
      {"root ::= \"\\q\"", "the escape is not known"},
      {"root ::= \"a\" root", "no text matches"},
      {"start: \"a\"\n%import common.WS", "directives of Lark"},
      {"start: \"a\" args\nargs: %json {\"not\": {}}",
       "in %json of the rule \"args\", at #: the keyword \"not\" is not supported"},
      {"start: %json [1]", "%json needs a JSON schema in braces"},
      {"start: %json {\"a\": \"}", "%json needs a JSON schema in braces"},
      {"root ::= %json {}", "directives of Lark"},
      {"start: \"a\"i", "flags of literals"},
      {"start: /a(?=b)/", "in the regular expression, at byte 1: lookahead"},
      {"start: \"a\" -> b", "aliases"},
      {"start: \"b\"..\"a\"", "a range must be"},
      {"root", "expected a rule"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(std::string(CompileGrammar(text).status().message()), HasSubstr(message)) << text;
  }
  EXPECT_THAT(std::string(CompileGrammar("root ::= " + std::string(200, '(')).status().message()), HasSubstr("nested"));
}

}  // namespace
}  // namespace quire::grammar
