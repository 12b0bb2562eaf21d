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

absl::StatusOr<std::shared_ptr<const Automaton>> CompileRegex(const std::string& pattern) {
  return Compile({.kind = Source::Kind::kRegex, .text = pattern});
}

bool RegexMatches(const std::string& pattern, const std::string& text) {
  const auto automaton = CompileRegex(pattern);
  EXPECT_TRUE(automaton.ok()) << pattern << ": " << automaton.status();
  return automaton.ok() && Matches(*automaton, text);
}

TEST(RegexTest, MatchesWholeTexts) {
  EXPECT_TRUE(RegexMatches("abc", "abc"));
  EXPECT_FALSE(RegexMatches("abc", "ab"));
  EXPECT_FALSE(RegexMatches("abc", "abcd"));
  EXPECT_TRUE(RegexMatches("^abc$", "abc"));
  EXPECT_TRUE(RegexMatches("a|bc|", ""));
  EXPECT_TRUE(RegexMatches("(a|bc)+", "abca"));
  EXPECT_FALSE(RegexMatches("(a|bc)+", "abb"));
}

TEST(RegexTest, RepeatsAsOftenAsItSays) {
  EXPECT_TRUE(RegexMatches("a{2,3}", "aa"));
  EXPECT_TRUE(RegexMatches("a{2,3}", "aaa"));
  EXPECT_FALSE(RegexMatches("a{2,3}", "a"));
  EXPECT_FALSE(RegexMatches("a{2,3}", "aaaa"));
  EXPECT_TRUE(RegexMatches("a{2,}", "aaaaa"));
  EXPECT_FALSE(RegexMatches("a{2}", "aaa"));
  EXPECT_TRUE(RegexMatches("(?:ab)*?c", "ababc"));
}

TEST(RegexTest, ReadsClassesAndEscapes) {
  EXPECT_TRUE(RegexMatches(R"([a-c\d_-]+)", "a-1_c"));
  EXPECT_FALSE(RegexMatches("[^a-c]", "b"));
  EXPECT_TRUE(RegexMatches("[^a-c]", "\xC3\xA9"));
  EXPECT_FALSE(RegexMatches("[^a-c]", "\xC3"));  // Half a character is none.
  EXPECT_TRUE(RegexMatches(".", "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(RegexMatches(".", "\n"));
  EXPECT_TRUE(RegexMatches(R"(\u00e9\x41\u{1F600}\.\n)",
                           "\xC3\xA9"
                           "A\xF0\x9F\x98\x80.\n"));
  EXPECT_TRUE(RegexMatches(R"(\w+\s\W)", "ab_9\t!"));
}

TEST(RegexTest, EveryCharacterOfARangeMatchesAndNoOther) {
  const auto automaton = CompileRegex("[\\u{7e}-\\u{10050}]");
  ASSERT_TRUE(automaton.ok());
  for (uint32_t c = 1; c <= 0x110000 - 1; c += c < 0x900 || (c > 0xD000 && c < 0x10100) ? 1 : 997) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    if (c < 0x80) {
      text = std::string(1, static_cast<char>(c));
    } else if (c < 0x800) {
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      text = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else {
      text = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
    ASSERT_EQ(Matches(*automaton, text), c >= 0x7E && c <= 0x10050) << c;
  }
}

TEST(RegexTest, RepetitionsOfWhatMayBeEmptyNeedFewStates) {
  for (const char* regex : {"(a?){1000}", "(a|){1000}", "(a{0,10}){0,100}", "((a?){10}){100}"}) {
    const auto automaton = CompileRegex(regex);
    ASSERT_TRUE(automaton.ok()) << regex << automaton.status();
    EXPECT_LE((*automaton)->num_states(), 1002) << regex;
    Matcher matcher(*automaton);
    EXPECT_TRUE(matcher.can_end()) << regex;
    EXPECT_TRUE(matcher.Accept(std::string(1000, 'a'))) << regex;
    EXPECT_TRUE(matcher.can_end()) << regex;
    EXPECT_FALSE(matcher.Accept("a")) << regex;
  }
  EXPECT_EQ((*CompileRegex("(a*){1000}"))->num_states(), (*CompileRegex("a*"))->num_states());
  EXPECT_TRUE(Matcher(*CompileRegex("(a{2,3}){0,2}")).can_end());
  Matcher twice(*CompileRegex("(a{2,3}){0,2}"));
  EXPECT_TRUE(twice.Accept("a"));
  EXPECT_FALSE(twice.can_end());
}

TEST(RegexTest, AssertionsHoldAnywhere) {
  for (const char* text : {"cat", "a cat", "a cat.", "cat cat"})
    EXPECT_TRUE(RegexMatches(R"(.*\bcat\b.*)", text)) << text;
  for (const char* text : {"concat", "cats", "cat_", "dog"}) EXPECT_FALSE(RegexMatches(R"(.*\bcat\b.*)", text)) << text;
  EXPECT_TRUE(RegexMatches(R"(.*\Bcat.*)", "concat"));
  EXPECT_FALSE(RegexMatches(R"(.*\Bcat.*)", "a cat"));
  EXPECT_TRUE(RegexMatches("(^a|b)*(c$|d)*", "abdc"));
  EXPECT_FALSE(RegexMatches("(^a|b)*(c$|d)*", "bacd"));
  EXPECT_TRUE(RegexMatches("a|^b$|(x$|y)", "b"));
  EXPECT_FALSE(RegexMatches("(?:^|-)+a", "-a-"));
  EXPECT_TRUE(RegexMatches(R"([\b])", "\b"));
}

TEST(RegexTest, ReadsWhatPythonWrites) {
  EXPECT_TRUE(RegexMatches("(?P<year>[0-9]{4})-(?P<n>x)", "2024-x"));
  for (const char* pattern : {"\\Aab\\Z", "\\Aab\\z", "(?:\\Aab|c)\\Z"}) {
    EXPECT_TRUE(RegexMatches(pattern, "ab")) << pattern;
    EXPECT_FALSE(RegexMatches(pattern, "abc")) << pattern;
  }
  EXPECT_TRUE(RegexMatches("\\A(?=.*1)[a-z1]+\\Z", "a1"));
  EXPECT_FALSE(RegexMatches("\\A(?=.*1)[a-z1]+\\Z", "ab"));
  for (const char* text : {"yes", "YES", "yEs"}) {
    EXPECT_TRUE(RegexMatches("(?i)yes", text)) << text;
    EXPECT_TRUE(RegexMatches("(?i:y)[eE](?i:S)", text)) << text;
    EXPECT_TRUE(RegexMatches("(?i)[x-z][^a](?-i:[sS])", text)) << text;
  }
  EXPECT_FALSE(RegexMatches("(?i:y)es", "YES")) << "the flag is for the group";
  EXPECT_TRUE(RegexMatches("(?i)^(?=.*A)[a-z]+$", "ba"));
  // Some implementations take K (the sign of Kelvin) for a k.
  EXPECT_FALSE(RegexMatches("(?i)[^k]", "K"));
  EXPECT_FALSE(RegexMatches("(?i)[^k]", "\xE2\x84\xAA"));
  EXPECT_FALSE(RegexMatches("(?i)\\W", "\xE2\x84\xAA"));
  EXPECT_TRUE(RegexMatches("(?i)[^\\sk]", "\xC3\xA9"));
  EXPECT_TRUE(RegexMatches("(?s)a.b", "a\nb"));
  EXPECT_TRUE(RegexMatches("(?is:A.)b", "a\nb"));
  EXPECT_FALSE(RegexMatches("a.b", "a\nb"));
}

TEST(RegexTest, CharactersHaveGeneralCategories) {
  for (const char* pattern : {"\\p{L}+", "\\p{Letter}+", "\\p{gc=L}+", "[\\p{Lu}\\p{Ll}\\p{Lo}]+", "[^\\P{L}]+"}) {
    EXPECT_TRUE(RegexMatches(pattern, "aZ\u00e9\u4e2d")) << pattern;
    EXPECT_FALSE(RegexMatches(pattern, "a1")) << pattern;
  }
  EXPECT_TRUE(RegexMatches("\\p{Nd}\\p{Sc}\\P{L}", "7$!"));
  EXPECT_FALSE(RegexMatches("\\P{L}", "\u00e9"));
  EXPECT_TRUE(RegexMatches("(\\p{L}| ){0,30}", "a b"));
}

TEST(RegexTest, LookaheadsMayStandAtTheBeginning) {
  const std::string password = R"(^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{4,}$)";
  EXPECT_TRUE(RegexMatches(password, "abC1"));
  for (const char* text : {"abc1", "ABCD", "aC1"}) EXPECT_FALSE(RegexMatches(password, text)) << text;
  EXPECT_TRUE(RegexMatches("(?!admin$)[a-z]+", "administrator"));
  EXPECT_FALSE(RegexMatches("(?!admin$)[a-z]+", "admin"));
  EXPECT_FALSE(RegexMatches(R"((?![)(|]|a\))[^x]+)", "a)"));
  EXPECT_THAT(std::string(CompileRegex("(?=a{)b").status().message()),
              HasSubstr("at byte 4, \"{\": a repetition must"));
}

TEST(RegexTest, RefusesWhatItDoesNotSupportWithThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"ab(?=c)", R"~(at byte 2, "(": lookahead)~"},
      {"a(?<!b)", R"~(at byte 1, "(": lookahead and lookbehind)~"},
      {"a|(?!b)", R"~(at byte 2, "(": lookahead and lookbehind)~"},
      {"(?<=b)", R"~(at byte 0, "(": lookahead and lookbehind)~"},
      {"a(?i)yes", R"~(at byte 1, "(": only the flags i and s are supported, at the beginning of the expression)~"},
      {"x[[:alpha:]]", R"~(at byte 2, "[": [:alpha:] is a class of POSIX, which is not supported; write [A-Za-z])~"},
      {"[^a[:digit:]_]+", "[:digit:] is a class of POSIX, which is not supported; write [0-9]"},
      {"[:space:]+", R"~(at byte 0, "[": [:space:] is a class of POSIX, which is not supported; write [\s])~"},
      {"(?m)^a", R"~(at byte 0, "(": only the flags i and s are supported, at the beginning of the expression)~"},
      {"(?P=year)", R"~(at byte 0, "(": references to groups are not supported)~"},
      {"(?i)[^\u00E9]",
       R"~(at byte 4, "[": with the flag i, a class that begins with ^ may name characters of ASCII)~"},
      {"(?>a)", R"~(at byte 0, "(": atomic groups are not supported; write (?:...))~"},
      {"(?#a)", R"~(at byte 0, "(": a group that begins with (? must be (?:...) or (?<name>...))~"},
      {R"~((a)\1)~", R"~(at byte 3, "\\": references to groups)~"},
      {R"~(\p{Script=Latin})~", R"~(at byte 0, "\\": of the properties of characters (\p), only general)~"},
      {R"~(\pL)~", R"~(at byte 0, "\\": \p needs a name in braces)~"},
      {"(ab", R"~(at byte 0, "(": the group has no)~"},
      {"ab)", R"~(at byte 2, ")": a ")" has no "(")~"},
      {"[ab", R"~(at byte 0, "[": the class has no)~"},
      {"[b-a]", R"~(at byte 2, "-": the range b-a ends before it begins)~"},
      {R"~([\d-z])~", R"~(at byte 3, "-": the range \d-z must be between two characters)~"},
      {"*a", R"~(at byte 0, "*")~"},
      {"a{3,2}", R"~(at byte 1, "{": in the repetition {3,2} the largest number)~"},
      {"a{20000}", R"~(at byte 1, "{": the repetition {20000} has too many, at most 10000 are allowed)~"},
      {"a**", R"~(at byte 2, "*": a repetition cannot be repeated)~"},
      {R"~(a\)~", R"~(at byte 1, "\\": nothing follows)~"},
      {"a$b", "no text matches"},
      {std::string("a(\n"), R"(at byte 1 in line 1, "(": the group has no)"},
      {"a\xFF", "the regular expression is not valid UTF-8: byte 1 of 2 is 0xff"},
      {"a[]", "at byte 1, \"[\": no text matches, because no character is in this class"},
      {R"~((a|[]b)[^\s\S]{2,})~", "at byte 7, \"[\": no text matches, because no character is in this class"},
      {"[]|[^\\d\\D]?[]", "at byte 0, \"[\": no text matches"},
  };
  for (const auto& [pattern, message] : cases) {
    EXPECT_THAT(std::string(CompileRegex(pattern).status().message()), HasSubstr(message)) << pattern;
  }
  EXPECT_THAT(std::string(CompileRegex(std::string(200, '(')).status().message()),
              HasSubstr("at byte 101, \"(\": groups are nested in more than 100 levels"));
  EXPECT_THAT(std::string(CompileRegex("((a{100}){100}){100}").status().message()), HasSubstr("need more than"));
  // The states of this one double with each character.
  EXPECT_THAT(std::string(CompileRegex("(a|b)*a(a|b){40}").status().message()), HasSubstr("too large"));
  EXPECT_THAT(std::string(CompileRegex(std::string(70'000, 'a')).status().message()),
              HasSubstr("has 70000 bytes, at most 65536"));
}

TEST(RegexTest, AClassWithoutACharacterLeavesTheOtherTexts) {
  for (const char* pattern : {"[]|a", "[]*a", "(b[]|a)[]?", "a[]{0}", "a(?:[]|)"}) {
    const auto automaton = CompileRegex(pattern);
    ASSERT_TRUE(automaton.ok()) << pattern << ": " << automaton.status();
    EXPECT_TRUE(Matches(*automaton, "a")) << pattern;
    EXPECT_FALSE(Matches(*automaton, "b")) << pattern;
  }
}

TEST(ChoiceTest, OnlyTheTextsOfTheListMatch) {
  const auto automaton = Compile({.kind = Source::Kind::kChoice, .choices = {"yes", "no", "not sure"}});
  ASSERT_TRUE(automaton.ok());
  EXPECT_TRUE(Matches(*automaton, "no"));
  EXPECT_TRUE(Matches(*automaton, "not sure"));
  EXPECT_FALSE(Matches(*automaton, "not"));
  EXPECT_EQ(Compile({.kind = Source::Kind::kChoice, .choices = {"a", "b\xC3"}}).status().message(),
            "choice 1 is not valid UTF-8: byte 1 of 2 is 0xc3");
  EXPECT_FALSE(Compile({.kind = Source::Kind::kChoice}).ok());
  EXPECT_FALSE(Compile({.kind = Source::Kind::kChoice, .choices = std::vector<std::string>(1025, "a")}).ok());
}

}  // namespace
}  // namespace quire::grammar
