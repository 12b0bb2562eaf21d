// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/regex.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/regex_syntax.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Strings = std::vector<std::string>;

constexpr char kLlama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";

// Returns the matches. Text between matches is written in angle brackets.
Strings FindAll(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  if (!regex.ok()) return {regex.status().ToString()};
  std::vector<TextSpan> spans;
  if (const absl::Status status = regex->FindAll(text, &spans); !status.ok()) return {status.ToString()};
  Strings parts;
  for (const TextSpan& span : spans) {
    const std::string part = text.substr(span.begin, span.end - span.begin);
    parts.push_back(span.is_match ? part : "<" + part + ">");
  }
  return parts;
}

std::string Error(const std::string& pattern) {
  const auto regex = Regex::Compile(pattern);
  return regex.ok() ? "" : std::string(regex.status().message());
}

TEST(RegexTest, MatchesAndGapsCoverTheText) {
  EXPECT_EQ(FindAll("b+", "abbcb"), Strings({"<a>", "bb", "<c>", "b"}));
  EXPECT_EQ(FindAll("b+", ""), Strings({}));
}

TEST(RegexTest, AnEmptyMatchBehindAMatchDoesNotCount) {
  EXPECT_EQ(FindAll("x*", "axb"), Strings({"", "<a>", "x", "<b>", ""}));
}

TEST(RegexTest, Llama3CutsWordsNumbersAndSpaces) {
  EXPECT_EQ(FindAll(kLlama3, "They'LL pay 12345  now.\n\n x"),
            Strings({"They", "'LL", " pay", " ", "123", "45", " ", " now", ".\n\n", " x"}));
}

TEST(RegexTest, CaseFoldingKnowsLongSAndKelvin) {
  EXPECT_EQ(FindAll("(?i:'s)", "'\xC5\xBF'S's"), Strings({"'\xC5\xBF", "'S", "'s"}));
  EXPECT_EQ(FindAll("(?i:k)", "K\xE2\x84\xAAk"), Strings({"K", "\xE2\x84\xAA", "k"}));
}

TEST(RegexTest, SpaceIsUnicodeWhiteSpace) {
  EXPECT_EQ(FindAll("\\s", "\xC2\x85\xE3\x80\x80"), Strings({"\xC2\x85", "\xE3\x80\x80"}));
  EXPECT_EQ(FindAll("\\s", "\xE1\xA0\x8E"), Strings({"<\xE1\xA0\x8E>"})) << "U+180E is no space";
  EXPECT_EQ(FindAll("\\S", "\xE1\xA0\x8E "), Strings({"\xE1\xA0\x8E", "< >"}));
  EXPECT_EQ(FindAll("[\\s\\S]", " a"), Strings({" ", "a"}));
}

TEST(RegexTest, CharactersNewerThanPcre2HaveTheirCategory) {
  EXPECT_EQ(FindAll("\\p{L}+", "a\xF0\xB1\x8D\x90"), Strings({"a\xF0\xB1\x8D\x90"})) << "U+31350, Unicode 15";
  EXPECT_EQ(FindAll("\\p{Han}", "\xF0\xAE\xAF\xB0"), Strings({"\xF0\xAE\xAF\xB0"})) << "U+2EBF0, Unicode 15.1";
  EXPECT_EQ(FindAll("\\p{Lu}", "\xEA\x9F\x8B"), Strings({"\xEA\x9F\x8B"})) << "U+A7CB, Unicode 16";
}

TEST(RegexTest, RubySyntaxKeepsItsMeaning) {
  EXPECT_EQ(FindAll("\\h+", "face it"), Strings({"face", "< it>"})) << "\\h is a hexadecimal digit";
  EXPECT_EQ(FindAll("^b$", "a\nb\nc"), Strings({"<a\n>", "b", "<\nc>"})) << "anchors are line anchors";
  EXPECT_EQ(FindAll("a.c", "a\nc"), Strings({"<a\nc>"}));
  EXPECT_EQ(FindAll("(?m:a.c)", "a\nc"), Strings({"a\nc"})) << "(?m) lets a dot match a newline";
  EXPECT_EQ(FindAll("a{1,2}+b", "aaab"), Strings({"aaab"})) << "{n,m}+ is not possessive";
  EXPECT_EQ(FindAll("a{,2}b", "aaab"), Strings({"<a>", "aab"}));
  EXPECT_EQ(FindAll("a(?i)b|c", "aB C"), Strings({"aB", "< C>"}));
  EXPECT_EQ(FindAll("[a[b-d]]+", "abcde"), Strings({"abcd", "<e>"})) << "a class inside a class is a union";
  EXPECT_EQ(FindAll("\\w+", "e\xCC\x81_1-"), Strings({"e\xCC\x81_1", "<->"})) << "marks belong to words";
  EXPECT_EQ(FindAll("\\bab\\b", "ab cab"), Strings({"ab", "< cab>"}));
  EXPECT_EQ(FindAll("\\u0041\\x42\\x{43}", "ABC"), Strings({"ABC"}));
}

TEST(RegexTest, WhatHasNoEquivalentIsRefusedByName) {
  EXPECT_THAT(Error("[a-z&&[^b]]"), HasSubstr("class intersection at byte 4"));
  EXPECT_THAT(Error("[a[^b]]"), HasSubstr("negated class inside a class at byte 2"));
  EXPECT_THAT(Error("[a\\W]"), HasSubstr("inside a class"));
  EXPECT_THAT(Error("(?<name>a)"), HasSubstr("kind of group that is not supported at byte 0"));
  EXPECT_THAT(Error("\\X"), HasSubstr("escape that is not supported"));
  EXPECT_THAT(Error("\\xE9"), HasSubstr("code point that is not supported")) << "a raw byte";
  EXPECT_THAT(Error("(a"), HasSubstr("not closed"));
  EXPECT_THAT(Error("a)"), HasSubstr(") without a group at byte 1"));
  EXPECT_THAT(Error("[a"), HasSubstr("class that is not closed"));
  EXPECT_THAT(Error("\\p{Nonsense}"), HasSubstr("does not compile"));
  EXPECT_THAT(Error("\\"), HasSubstr("backslash at its end"));
  EXPECT_THAT(Error("a\xFF"), HasSubstr("not valid UTF-8: byte 1"));
  EXPECT_THAT(Error(std::string(1000, '(')), HasSubstr("nested too deeply"));
  EXPECT_THAT(Error(std::string(70000, 'a')), HasSubstr("70000 bytes, the limit is 65536"));
}

TEST(RegexTest, RunawayBacktrackingIsAnErrorNotAHang) {
  EXPECT_THAT(FindAll("(a|a)*(a|a)*(a|a)*b", std::string(60, 'a') + "xb"),
              ElementsAre(HasSubstr("gave up at byte 0 of 62")));
}

TEST(RegexTest, LongRunsNeedNoStack) {
  const std::string run(1 << 20, '.');
  EXPECT_EQ(FindAll(kLlama3, run), Strings({run}));
  EXPECT_EQ(FindAll("(?:a|b|\\.)+", run), Strings({run}));
}

}  // namespace
}  // namespace quire
