// SPDX-License-Identifier: Apache-2.0

#include "grammar/number_text.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grammar/grammar.h"
#include "gtest/gtest.h"
#include "tests/grammar/random_text.h"

namespace quire::grammar {
namespace {

using testing::HasSubstr;

Decimal Number(const std::string& text) {
  return *Decimal::Of(text, 40);
}

std::shared_ptr<const Automaton> Compiled(const NumberRule& rule) {
  SyntaxTree tree;
  const RuleId root = tree.AddRule("number", /*may_be_inlined=*/false);
  const absl::StatusOr<ExprId> body = AddNumbers(rule, &tree);
  EXPECT_TRUE(body.ok()) << body.status();
  tree.SetBody(root, *body);
  const auto automaton = Automaton::Compile(tree);
  EXPECT_TRUE(automaton.ok()) << automaton.status();
  return *automaton;
}

std::vector<std::string> NumbersWithTwoDigitsBehindThePoint(int most) {
  std::vector<std::string> numbers;
  for (int hundredths = -100 * most; hundredths <= 100 * most; ++hundredths) {
    const int size = std::abs(hundredths);
    const std::string whole = (hundredths < 0 ? "-" : "") + std::to_string(size / 100);
    const std::string digits = std::to_string(size % 100 + 100).substr(1);
    numbers.push_back(whole + "." + digits);
    if (digits[1] == '0') numbers.push_back(whole + "." + digits.substr(0, 1));
    if (digits == "00") numbers.push_back(whole);
  }
  return numbers;
}

TEST(DecimalTest, ReadsNumbersAsTheyAreWritten) {
  EXPECT_EQ(Number("-12.50e1"), (Decimal{true, "125", ""}));
  EXPECT_EQ(Number("5e-3"), (Decimal{false, "", "005"}));
  EXPECT_EQ(Number("-0.0"), Decimal());
  EXPECT_EQ(Number("1e3"), (Decimal{false, "1000", ""}));
  EXPECT_EQ(Number("100.010"), (Decimal{false, "100", "01"}));
  EXPECT_FALSE(Decimal::Of("1e40", 40).has_value());
  EXPECT_FALSE(Decimal::Of("1e-99999999999999999999", 40).has_value());
  EXPECT_TRUE(IsLess(Number("-2"), Number("-1.5")));
  EXPECT_TRUE(IsLess(Number("0.09"), Number("0.1")));
  EXPECT_FALSE(IsLess(Number("10"), Number("9.99")));
}

TEST(NumberTextTest, TextsAreTheNumbersBetweenTheBounds) {
  const std::vector<std::string> numbers = NumbersWithTwoDigitsBehindThePoint(13);
  for (const auto& [low, high] : std::vector<std::pair<const char*, const char*>>{{"0.5", "2.25"},
                                                                                  {"-2.25", "-0.5"},
                                                                                  {"-0.05", "0.1"},
                                                                                  {"9.99", "10.01"},
                                                                                  {"0", "0"},
                                                                                  {"-12", "1e1"},
                                                                                  {"", "-3.7"},
                                                                                  {"11.11", ""},
                                                                                  {"", "0"},
                                                                                  {"0", ""},
                                                                                  {"3", "2"},
                                                                                  {"1.999", "2.001"}}) {
    for (int excluded = 0; excluded < 8; ++excluded) {
      NumberRule rule{.is_integer = (excluded & 4) != 0};
      if (*low != 0) rule.AtLeast(Number(low), (excluded & 1) != 0);
      if (*high != 0) rule.AtMost(Number(high), (excluded & 2) != 0);
      SyntaxTree tree;
      tree.AddRule("number", /*may_be_inlined=*/false);
      tree.SetBody(0, *AddNumbers(rule, &tree));
      const auto automaton = Automaton::Compile(tree);
      for (const std::string& number : numbers) {
        const bool has_point = number.find('.') != number.npos;
        const bool is_negative_zero = number[0] == '-' && Number(number).is_zero();
        const bool fits = Fits(Number(number), rule) && !(rule.is_integer && has_point) && !is_negative_zero;
        const bool is_text = automaton.ok() && Matches(*automaton, number);
        ASSERT_EQ(is_text, fits) << number << " in " << low << " .. " << high << ", excluded " << excluded;
      }
    }
  }
}

TEST(NumberTextTest, LargeIntegersAreExact) {
  NumberRule rule{.is_integer = true};
  rule.AtLeast(Number("-9223372036854775808"), /*is_excluded=*/false);
  rule.AtMost(Number("18446744073709551615"), /*is_excluded=*/true);
  const auto automaton = Compiled(rule);
  for (const char* text : {"-9223372036854775808", "18446744073709551614", "9007199254740993"}) {
    EXPECT_TRUE(Matches(automaton, text)) << text;
  }
  for (const char* text : {"-9223372036854775809", "18446744073709551615", "20000000000000000000"}) {
    EXPECT_FALSE(Matches(automaton, text)) << text;
  }
}

TEST(NumberTextTest, TextsAreMultiples) {
  const std::vector<std::string> numbers = NumbersWithTwoDigitsBehindThePoint(40);
  for (const auto& [multiple, no_multiple] : std::vector<std::pair<const char*, const char*>>{{"3", ""},
                                                                                              {"0.25", ""},
                                                                                              {"1.5", ""},
                                                                                              {"0.01", ""},
                                                                                              {"12", ""},
                                                                                              {"", "1"},
                                                                                              {"", "0.5"},
                                                                                              {"2", "3"},
                                                                                              {"0.1", "7"}}) {
    for (const char* high : {"", "7.25", "35"}) {
      NumberRule rule;
      if (*multiple != 0) rule.multiples_of = {Number(multiple)};
      if (*no_multiple != 0) rule.no_multiples_of = {Number(no_multiple)};
      if (*high != 0) rule.AtMost(Number(high), /*is_excluded=*/false);
      const auto automaton = Compiled(rule);
      for (const std::string& number : numbers) {
        if (number[0] == '-' && Number(number).is_zero()) continue;
        const bool fits = Fits(Number(number), rule);
        // Zeros behind the point are texts only as far as the multiple has digits there.
        if (Matches(automaton, number)) {
          ASSERT_TRUE(fits) << number << " of " << multiple << " and not " << no_multiple;
        } else {
          const bool is_shortest = number.find('.') == number.npos || number.back() != '0';
          ASSERT_FALSE(fits && is_shortest) << number << " of " << multiple << " and not " << no_multiple;
        }
      }
    }
  }
}

TEST(NumberTextTest, ManyMultiplesStayExact) {
  NumberRule rule{.is_integer = true, .multiples_of = {Number("1000")}};
  const auto any = Compiled(rule);
  EXPECT_TRUE(Matches(any, "123456789000"));
  EXPECT_FALSE(Matches(any, "123456789001"));
  rule.AtLeast(Number("-5000"), /*is_excluded=*/true);
  rule.AtMost(Number("86400"), /*is_excluded=*/false);
  const auto few = Compiled(rule);
  for (const char* text : {"-4000", "0", "1000", "86000"}) EXPECT_TRUE(Matches(few, text)) << text;
  for (const char* text : {"-5000", "500", "87000", "-0"}) EXPECT_FALSE(Matches(few, text)) << text;
}

TEST(NumberTextTest, ALargeModulusIsRefused) {
  NumberRule rule;
  rule.multiples_of = {Number("0.123456789")};
  SyntaxTree tree;
  EXPECT_THAT(std::string(AddNumbers(rule, &tree).status().message()), HasSubstr("is more than 4096"));
}

}  // namespace
}  // namespace quire::grammar
