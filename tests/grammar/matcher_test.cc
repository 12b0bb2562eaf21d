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
