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

// The matches; gaps are written in angle brackets.
Strings FindAll(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  if (!regex.ok()) return {regex.status().ToString()};
  std::vector<Span> spans;
  if (const absl::Status status = regex->FindAll(text, &spans); !status.ok()) return {status.ToString()};
  Strings parts;
  for (const Span& span : spans) {
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
  EXPECT_THAT(FindAll("b+", "abbcb"), ElementsAre("<a>", "bb", "<c>", "b"));
  EXPECT_THAT(FindAll("b+", ""), ElementsAre());
}

TEST(RegexTest, AnEmptyMatchBehindAMatchDoesNotCount) {
  EXPECT_THAT(FindAll("x*", "axb"), ElementsAre("", "<a>", "x", "<b>", ""));
}

TEST(RegexTest, Llama3CutsWordsNumbersAndSpaces) {
  EXPECT_THAT(FindAll(kLlama3, "They'LL pay 12345  now.\n\n x"),
              ElementsAre("They", "'LL", " pay", " ", "123", "45", " ", " now", ".\n\n", " x"));
}

TEST(RegexTest, CaseFoldingKnowsLongSAndKelvin) {
  EXPECT_THAT(FindAll("(?i:'s)", "'\xC5\xBF'S's"), ElementsAre("'\xC5\xBF", "'S", "'s"));
  EXPECT_THAT(FindAll("(?i:k)", "K\xE2\x84\xAAk"), ElementsAre("K", "\xE2\x84\xAA", "k"));
}

TEST(RegexTest, SpaceIsUnicodeWhiteSpace) {
  EXPECT_THAT(FindAll("\\s", "\xC2\x85\xE3\x80\x80"), ElementsAre("\xC2\x85", "\xE3\x80\x80"));
  EXPECT_THAT(FindAll("\\s", "\xE1\xA0\x8E"), ElementsAre("<\xE1\xA0\x8E>")) << "U+180E is no space";
  EXPECT_THAT(FindAll("\\S", "\xE1\xA0\x8E "), ElementsAre("\xE1\xA0\x8E", "< >"));
  EXPECT_THAT(FindAll("[\\s\\S]", " a"), ElementsAre(" ", "a"));
}

TEST(RegexTest, CharactersNewerThanPcre2HaveTheirCategory) {
  EXPECT_THAT(FindAll("\\p{L}+", "a\xF0\xB1\x8D\x90"), ElementsAre("a\xF0\xB1\x8D\x90")) << "U+31350, Unicode 15";
  EXPECT_THAT(FindAll("\\p{Han}", "\xF0\xAE\xAF\xB0"), ElementsAre("\xF0\xAE\xAF\xB0")) << "U+2EBF0, Unicode 15.1";
  EXPECT_THAT(FindAll("\\p{Lu}", "\xEA\x9F\x8B"), ElementsAre("\xEA\x9F\x8B")) << "U+A7CB, Unicode 16";
}

TEST(RegexTest, RubySyntaxKeepsItsMeaning) {
  EXPECT_THAT(FindAll("\\h+", "face it"), ElementsAre("face", "< it>")) << "\\h is a hexadecimal digit";
  EXPECT_THAT(FindAll("^b$", "a\nb\nc"), ElementsAre("<a\n>", "b", "<\nc>")) << "anchors are line anchors";
  EXPECT_THAT(FindAll("a.c", "a\nc"), ElementsAre("<a\nc>"));
  EXPECT_THAT(FindAll("(?m:a.c)", "a\nc"), ElementsAre("a\nc")) << "(?m) lets a dot match a newline";
  EXPECT_THAT(FindAll("a{1,2}+b", "aaab"), ElementsAre("aaab")) << "{n,m}+ is not possessive";
  EXPECT_THAT(FindAll("a{,2}b", "aaab"), ElementsAre("<a>", "aab"));
  EXPECT_THAT(FindAll("a(?i)b|c", "aB C"), ElementsAre("aB", "< C>"));
  EXPECT_THAT(FindAll("[a[b-d]]+", "abcde"), ElementsAre("abcd", "<e>")) << "a class inside a class is a union";
  EXPECT_THAT(FindAll("\\w+", "e\xCC\x81_1-"), ElementsAre("e\xCC\x81_1", "<->")) << "marks belong to words";
  EXPECT_THAT(FindAll("\\bab\\b", "ab cab"), ElementsAre("ab", "< cab>"));
  EXPECT_THAT(FindAll("\\u0041\\x42\\x{43}", "ABC"), ElementsAre("ABC"));
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
  EXPECT_THAT(FindAll(kLlama3, run), ElementsAre(run));
  EXPECT_THAT(FindAll("(?:a|b|\\.)+", run), ElementsAre(run));
}

}  // namespace
}  // namespace quire
