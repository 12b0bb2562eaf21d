// SPDX-License-Identifier: Apache-2.0

#include "grammar/matcher.h"

#include <string>

#include "grammar/grammar.h"
#include "gtest/gtest.h"

namespace quire::grammar {
namespace {

std::shared_ptr<const Automaton> Ebnf(const std::string& text) {
  return *Compile({.kind = Source::Kind::kEbnf, .text = text});
}

TEST(MatcherTest, KnowsWhereATextMayEnd) {
  Matcher matcher(Ebnf(R"(root ::= "ab"+)"));
  EXPECT_FALSE(matcher.can_end());
  EXPECT_TRUE(matcher.Accept("ab"));
  EXPECT_TRUE(matcher.can_end());
  EXPECT_TRUE(matcher.MayContinue());
  EXPECT_TRUE(matcher.Accept("a"));
  EXPECT_FALSE(matcher.can_end());
}

TEST(MatcherTest, AcceptsNothingAfterAWrongByte) {
  Matcher matcher(Ebnf(R"(root ::= "ab")"));
  EXPECT_FALSE(matcher.Accept("x"));
  EXPECT_TRUE(matcher.is_dead());
  EXPECT_FALSE(matcher.Accept("ab"));
  EXPECT_FALSE(matcher.can_end());
}

TEST(MatcherTest, ForksAreIndependent) {
  Matcher matcher(Ebnf(R"~(root ::= "(" root ")" | "x")~"));
  EXPECT_TRUE(matcher.Accept("(("));
  Matcher fork = matcher;
  EXPECT_TRUE(fork.Accept("x))"));
  EXPECT_TRUE(fork.can_end());
  EXPECT_FALSE(matcher.can_end());
  EXPECT_TRUE(matcher.Accept("(x)))"));
  EXPECT_TRUE(matcher.can_end());
}

TEST(MatcherTest, RecursionOnTheRightNeedsNoStack) {
  Matcher matcher(Ebnf("root ::= \"a\" root | \"b\""));
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(matcher.Accept("a"));
  EXPECT_TRUE(matcher.frames().frames.empty());
  EXPECT_TRUE(matcher.Accept("b"));
  EXPECT_TRUE(matcher.can_end());
}

TEST(MatcherTest, NestingHasALimit) {
  const auto automaton = Ebnf(R"~(root ::= "(" root ")" | "x")~");
  Matcher matcher(automaton);
  for (int i = 0; i < kMaxNesting; ++i) ASSERT_TRUE(matcher.Accept("("));
  Matcher full = matcher;
  EXPECT_TRUE(full.Accept("x"));
  EXPECT_FALSE(matcher.Accept("("));
}

// Rules that can contain themselves are called, so each of these is a level.
std::string ChainOfRules(int num_rules, const std::string& other = "") {
  std::string text = "root ::= r0" + other + "\n";
  for (int i = 0; i < num_rules; ++i) {
    const std::string name = "r" + std::to_string(i);
    text += name + " ::= \"(\" r" + std::to_string(i + 1) + " \")\" | \"[\" " + name + " \"]\"\n";
  }
  return text + "r" + std::to_string(num_rules) + " ::= \"x\" | \"<\" r" + std::to_string(num_rules) + " \">\"\n";
}

TEST(MatcherTest, AGuideThatNeedsMoreLevelsThanThereAreIsRefused) {
  Matcher matcher(Ebnf(ChainOfRules(kMaxNesting)));
  EXPECT_TRUE(matcher.Accept(std::string(kMaxNesting, '(')));
  EXPECT_TRUE(matcher.Accept("x" + std::string(kMaxNesting, ')')));
  EXPECT_TRUE(matcher.can_end());
  const auto refused = Compile({.kind = Source::Kind::kEbnf, .text = ChainOfRules(kMaxNesting + 1)});
  EXPECT_EQ(refused.status().message(), "every text needs rules that are nested in more than 256 levels");
  // Another way that needs no level is enough.
  EXPECT_TRUE(Compile({.kind = Source::Kind::kEbnf, .text = ChainOfRules(kMaxNesting + 1, " | \"y\"")}).ok());
}

TEST(MatcherTest, WaysToReadTheSameBytesShareTheirStacks) {
  Matcher matcher(Ebnf(R"~(root ::= x | y
x ::= "(" root ")"
y ::= "(" root ")" | "z")~"));
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(matcher.Accept("("));
    ASSERT_LE(matcher.set().positions.size(), 3u);
    ASSERT_LE(matcher.frames().frames.size(), static_cast<size_t>(i) + 1);
  }
  EXPECT_TRUE(matcher.Accept("z" + std::string(60, ')')));
  EXPECT_TRUE(matcher.can_end());
}

// Each of r0 to r15 is twice the next rule, and r16 may be empty. There are more ways to read "a" than memory could
// hold.
TEST(MatcherTest, NullableRulesThatDoubleShareTheirStacks) {
  std::string text = "root ::= r0 \"x\"\n";
  for (int i = 0; i < 16; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    text += "r" + std::to_string(i) + " ::= " + next + " " + next + "\n";
  }
  Matcher matcher(Ebnf(text + "r16 ::= \"\" | \"a\""));
  EXPECT_LE(matcher.set().positions.size(), 150u);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(matcher.Accept("a"));
  EXPECT_LE(matcher.set().positions.size(), 400u);
  EXPECT_LE(matcher.frames().links.size(), 2000u);
  Matcher fork = matcher;
  EXPECT_TRUE(fork.Accept("x"));
  EXPECT_TRUE(fork.can_end());
  for (int i = 0; i < 1000 && matcher.Accept("a"); ++i) ASSERT_LE(matcher.frames().links.size(), kMaxLinks);
  EXPECT_TRUE(matcher.is_exhausted());
}

TEST(MatcherTest, TheEmptyTextMatchesWhereTheRootIsNullable) {
  const auto automaton = Ebnf(R"~(root ::= "" | "(" root ")" root)~");
  EXPECT_TRUE(automaton->matches_empty());
  Matcher matcher(automaton);
  EXPECT_TRUE(matcher.can_end());
  EXPECT_TRUE(matcher.Accept("("));
  EXPECT_FALSE(matcher.can_end());
  EXPECT_TRUE(matcher.Accept(")()"));
  EXPECT_TRUE(matcher.can_end());
  EXPECT_TRUE(Matcher(Ebnf("root ::= \"\"")).can_end());
  EXPECT_FALSE(Matcher(Ebnf("root ::= \"a\"*  \"b\"")).can_end());
}

// Every two neighbouring places can be the beginning and the end of a part, so the stacks grow with each byte.
TEST(MatcherTest, TextsThatCanBeReadInTooManyWaysEnd) {
  Matcher matcher(Ebnf(R"~(root ::= s
s ::= t s | t
t ::= "a" | "a" s "a")~"));
  int num_accepted = 0;
  while (matcher.Accept("a") && num_accepted < 10'000) {
    ++num_accepted;
    ASSERT_LE(matcher.set().positions.size(), kMaxPositions);
    ASSERT_LE(matcher.frames().links.size(), kMaxLinks);
  }
  EXPECT_GT(num_accepted, 50);
  EXPECT_LT(num_accepted, 1000);
  EXPECT_TRUE(matcher.is_exhausted());
  EXPECT_TRUE(matcher.is_dead());
  EXPECT_FALSE(matcher.Accept("a"));
}

TEST(MatcherTest, AGrammarWhoseBeginningCanBeReadInTooManyWaysIsRefused) {
  // Each rule can begin with all rules behind it.
  std::string text;
  constexpr int kNumRules = 170;
  for (int i = 0; i < kNumRules; ++i) {
    const std::string name = i == 0 ? "root" : "r" + std::to_string(i);
    text += name + " ::= \"a\" " + name;
    for (int j = i + 1; j < kNumRules; ++j) text += "|r" + std::to_string(j) + (j % 2 == 0 ? "\"b\"" : "");
    text += "\n";
    if (text.size() > 30'000) break;
  }
  const auto automaton = Compile({.kind = Source::Kind::kEbnf, .text = text});
  EXPECT_FALSE(automaton.ok());
}

}  // namespace
}  // namespace quire::grammar
