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
  EXPECT_TRUE(matcher.frames().empty());
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

TEST(MatcherTest, AmbiguousGrammarsKeepALimitedNumberOfPositions) {
  Matcher matcher(Ebnf(R"~(root ::= x | y
x ::= "(" root ")"
y ::= "(" root ")" | "z")~"));
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(matcher.Accept("("));
    ASSERT_LE(matcher.set().positions.size(), kMaxPositions);
  }
  EXPECT_TRUE(matcher.Accept("z"));
}

}  // namespace
}  // namespace quire::grammar
