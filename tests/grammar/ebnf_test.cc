// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grammar/grammar.h"
#include "grammar/token_table.h"
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

TEST(EbnfTest, LarkMayNameSpecialTokens) {
  const auto automaton = CompileGrammar("start: <|call|> /[^b]+/ [<\uFF5Cend\u2581>]");
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(Matches(*automaton, SpecialTokenBytes("<|call|>") + "a" + SpecialTokenBytes("<\uFF5Cend\u2581>")));
  EXPECT_TRUE(Matches(*automaton, "<|call|>a<\uFF5Cend\u2581>")) << "a vocabulary may have it as an ordinary token";
  EXPECT_FALSE(Matches(*automaton, SpecialTokenBytes("<|other|>") + "a"));
  EXPECT_FALSE(Matches(*automaton, "<|call|>" + SpecialTokenBytes("<|other|>"))) << "a class has characters only";
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
      {"root ::= item", R"(at byte 9, "i": the rule "item" is not defined)"},
      {"root ::= \"a\"\nroot ::= \"b\"", R"(at byte 13 in line 2, "r": the rule "root" is defined twice)"},
      {"root ::= root \"a\" | \"b\"", "rule \"root\" is left-recursive"},
      {"root ::= a\na ::= b? root | \"y\"\nb ::= \"x\"", "is left-recursive"},
      {"root ::= \"a", R"(at byte 9, "\"": the literal does not end)"},
      {"root ::= (\"a\"", R"(at byte 9, "(": the "(" has no)"},
      {"root ::= (\"a\" | -", R"(at byte 16, "-": aliases)"},
      {"root ::= \"a\"{", R"(at byte 12, "{": a repetition must be)"},
      {"root ::= \"\\q\"", R"(at byte 10, "\\": the escape \q is not known)"},
      {"root ::= \"a\"{20000}", R"(at byte 12, "{": the repetition {20000} has too many, at most 10000 are allowed)"},
      {"root ::= \"a\" {3, 2} \"b\"", R"(at byte 13, "{": in the repetition {3, 2} the largest number)"},
      {"root ::= \"a\" root", "no text matches"},
      {"root ::= \"a\" b | c\nb ::= \"b\" d\nc ::= \"c\" d\nd ::= \"d\" d",
       R"(no text matches, because rule "d" has none)"},
      {"start: \"a\"\n%import common.WS", R"(at byte 11 in line 2, "%": directives of Lark)"},
      {"start: \"a\" args\nargs: %json {\"disallow\": {}}",
       "in %json of the rule \"args\", at #/disallow: the keyword \"disallow\" is not supported"},
      {"start: %json [1]", "%json needs a JSON schema in braces"},
      {"start: %json {\"a\": \"}", "%json needs a JSON schema in braces"},
      {"root ::= %json {}", "directives of Lark"},
      {"start: \"a\"i", R"(at byte 10, "i": flags of literals)"},
      {"start: /a(?=b)/", R"(at byte 7, "/": in the regular expression, at byte 1, "(": lookahead)"},
      {"start: <a b>", R"(at byte 7, "<": the name of a special token must end with ">")"},
      {"start: \"a\" -> b", "aliases"},
      {"start: \"b\"..\"a\"", R"(at byte 7, "\"": the range "b".."a" must be)"},
      {"root", R"(at byte 0, "r": expected a rule)"},
      {"start:\n  \"a\" (", R"(at byte 13 in line 2, "(": the "(" has no)"},
      {"root ::= \xFF", "the grammar is not valid UTF-8: byte 9 of 10 is 0xff"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(std::string(CompileGrammar(text).status().message()), HasSubstr(message)) << text;
  }
  EXPECT_THAT(std::string(CompileGrammar("root ::= " + std::string(200, '(')).status().message()), HasSubstr("nested"));
}

}  // namespace
}  // namespace quire::grammar
