// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "kv_manager/text/stop_string_matcher.h"
#include "tests/random.h"

namespace quire {
namespace {

TEST(StopStringMatcherTest, TextWithoutStopStringsIsShownAtOnce) {
  StopStringMatcher matcher({});
  std::string shown;
  EXPECT_EQ(matcher.Append("abc", true, &shown), std::nullopt);
  EXPECT_EQ(shown, "abc");
  EXPECT_EQ(matcher.held_back(), "");
}

TEST(StopStringMatcherTest, PossibleBeginningIsHeldBackUntilItFails) {
  StopStringMatcher matcher({"END"});
  std::string shown;
  EXPECT_EQ(matcher.Append("the E", true, &shown), std::nullopt);
  EXPECT_EQ(shown, "the ");
  EXPECT_EQ(matcher.held_back(), "E");
  EXPECT_EQ(matcher.Append("asy E", true, &shown), std::nullopt);
  EXPECT_EQ(shown, "the Easy ");
}

TEST(StopStringMatcherTest, MatchAcrossPiecesCutsTheText) {
  StopStringMatcher matcher({"END"});
  std::string shown;
  matcher.Append("the E", true, &shown);
  matcher.Append("N", true, &shown);
  EXPECT_EQ(matcher.Append("D!", true, &shown), 0);
  EXPECT_EQ(shown, "the ");
  EXPECT_EQ(matcher.held_back(), "");
}

TEST(StopStringMatcherTest, StringThatEndsFirstWins) {
  StopStringMatcher matcher({"abcd", "c"});
  std::string shown;
  EXPECT_EQ(matcher.Append("xabcd", true, &shown), 1);
  EXPECT_EQ(shown, "xab");
}

TEST(StopStringMatcherTest, LongestOfThoseThatEndTogetherWins) {
  StopStringMatcher matcher({"c", "abc", "bc"});
  std::string shown;
  EXPECT_EQ(matcher.Append("xabc", true, &shown), 1);
  EXPECT_EQ(shown, "x");
}

TEST(StopStringMatcherTest, BeginningInsideAFailedBeginningIsFound) {
  StopStringMatcher matcher({"aab"});
  std::string shown;
  EXPECT_EQ(matcher.Append("aaa", true, &shown), std::nullopt);
  EXPECT_EQ(shown, "a");
  EXPECT_EQ(matcher.Append("b", true, &shown), 0);
  EXPECT_EQ(shown, "a");
}

TEST(StopStringMatcherTest, StringsCompletedTooEarlyAreOrdinaryText) {
  StopStringMatcher matcher({"aa"});
  std::string shown;
  EXPECT_EQ(matcher.Append("xaa", false, &shown), std::nullopt);
  EXPECT_EQ(shown + std::string(matcher.held_back()), "xaa");
  EXPECT_EQ(matcher.Append("a", true, &shown), 0);
  EXPECT_EQ(shown, "xa");
}

TEST(StopStringMatcherTest, HiddenTextCanBeAStopString) {
  StopStringMatcher matcher({"</s>"});
  std::string shown;
  EXPECT_EQ(matcher.Append("ab", true, &shown), std::nullopt);
  EXPECT_EQ(shown, "ab");
  EXPECT_EQ(matcher.AppendHidden("</s>", true, &shown), 0);
  EXPECT_EQ(shown, "ab");
}

TEST(StopStringMatcherTest, TextBeforeHiddenTextIsHeldBackAndCut) {
  StopStringMatcher matcher({"b</s>\nc"});
  std::string shown;
  EXPECT_EQ(matcher.Append("ab", true, &shown), std::nullopt);
  EXPECT_EQ(matcher.AppendHidden("</s>", true, &shown), std::nullopt);
  EXPECT_EQ(matcher.Append("\n", true, &shown), std::nullopt);
  EXPECT_EQ(shown, "a");
  EXPECT_EQ(matcher.held_back(), "b\n");
  StopStringMatcher other = matcher;
  std::string other_shown = shown;
  EXPECT_EQ(matcher.Append("c", true, &shown), 0);
  EXPECT_EQ(shown, "a");
  EXPECT_EQ(other.Append("d", true, &other_shown), std::nullopt);
  EXPECT_EQ(other_shown, "ab\nd");
}

TEST(StopStringMatcherTest, ShownTextMatchesAcrossHiddenText) {
  StopStringMatcher matcher({"bc"});
  std::string shown;
  EXPECT_EQ(matcher.Append("ab", true, &shown), std::nullopt);
  EXPECT_EQ(matcher.AppendHidden("</s>", true, &shown), std::nullopt);
  EXPECT_EQ(shown, "a");
  EXPECT_EQ(matcher.Append("c", true, &shown), 0);
  EXPECT_EQ(shown, "a");
}

TEST(StopStringMatcherTest, HiddenTextThatMayNotMatchYetIsNeverShown) {
  StopStringMatcher matcher({"<s>"});
  std::string shown;
  EXPECT_EQ(matcher.AppendHidden("<s>", false, &shown), std::nullopt);
  EXPECT_EQ(matcher.Append("a<", false, &shown), std::nullopt);
  EXPECT_EQ(shown, "a");
  EXPECT_EQ(matcher.AppendHidden("s>", true, &shown), 0);
  EXPECT_EQ(shown, "a");
}

// Finds the first stop string of a whole generated text, of which the characters above 'c' are hidden, by trying all
// positions. Of the matches with the same end and the same length, the one in the shown text counts.
std::optional<int> FirstStop(const std::string& text, const std::vector<std::string>& stops, std::string* shown) {
  std::string generated;
  shown->clear();
  for (const char c : text) {
    generated += c;
    const bool is_shown = c <= 'c';
    if (is_shown) *shown += c;
    std::optional<int> match;
    size_t num_shown = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (match.has_value() && stops[*match].size() >= stops[i].size()) continue;
      if (is_shown && shown->ends_with(stops[i])) {
        match = static_cast<int>(i);
        num_shown = stops[i].size();
      } else if (generated.ends_with(stops[i])) {
        match = static_cast<int>(i);
        num_shown = std::count_if(stops[i].begin(), stops[i].end(), [](char s) { return s <= 'c'; });
      }
    }
    if (!match.has_value()) continue;
    shown->resize(shown->size() - num_shown);
    return match;
  }
  return std::nullopt;
}

// Compares the matcher with FirstStop for random texts of the first `num_letters` letters, cut into random pieces.
void ExpectAnyCutGivesTheSame(int num_letters) {
  int num_matches = 0;
  for (int seed = 0; seed < 5000; ++seed) {
    Random random(seed);
    const auto text_of = [&](int length) {
      std::string text;
      for (int i = 0; i < length; ++i) text += static_cast<char>('a' + random.Below(num_letters));
      return text;
    };
    std::vector<std::string> stops;
    for (int i = random.Below(4); i >= 0; --i) stops.push_back(text_of(1 + random.Below(6)));
    const std::string text = text_of(random.Below(40));
    std::string expected_shown;
    const std::optional<int> expected = FirstStop(text, stops, &expected_shown);

    StopStringMatcher matcher(stops);
    std::string shown;
    std::optional<int> match;
    for (size_t begin = 0; begin < text.size() && !match.has_value();) {
      const bool is_hidden = text[begin] > 'c';
      size_t end = begin + 1;
      while (end < text.size() && (text[end] > 'c') == is_hidden && random.Below(3) > 0) ++end;
      const std::string piece = text.substr(begin, end - begin);
      match = is_hidden ? matcher.AppendHidden(piece, true, &shown) : matcher.Append(piece, true, &shown);
      begin = end;
      // No text is returned that may still become part of a stop string.
      ASSERT_EQ(shown, expected_shown.substr(0, shown.size())) << "seed " << seed;
    }
    if (!match.has_value()) shown += matcher.held_back();
    ASSERT_EQ(match.has_value(), expected.has_value()) << "seed " << seed;
    ASSERT_TRUE(!match.has_value() || matcher.stop(*match) == stops[*expected]) << "seed " << seed;
    ASSERT_EQ(shown, expected_shown) << "seed " << seed;
    num_matches += match.has_value();
  }
  EXPECT_GT(num_matches, 1000);
  EXPECT_LT(num_matches, 4900);
}

TEST(StopStringMatcherTest, AnyCutGivesTheResultOfTheWholeText) {
  ExpectAnyCutGivesTheSame(/*num_letters=*/3);
}

TEST(StopStringMatcherTest, AnyCutOfPartlyHiddenTextGivesTheResultOfTheWholeText) {
  ExpectAnyCutGivesTheSame(/*num_letters=*/5);
}

}  // namespace
}  // namespace quire
