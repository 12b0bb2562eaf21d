// SPDX-License-Identifier: Apache-2.0

#include <string_view>
#include <utility>
#include <vector>

#include "grammar/character_kinds.h"
#include "grammar/grammar.h"
#include "grammar/state_runs.h"
#include "gtest/gtest.h"

namespace quire::grammar {
namespace {

CharacterKinds KindOf(char c) {
  return KindsOfAscii()[static_cast<size_t>(c)];
}

// The suffixes of the node with this text, in a trie of the texts.
Suffixes SuffixesOf(std::string_view text, std::vector<std::string_view> texts) {
  std::vector<std::pair<std::string_view, TokenId>> tokens;
  for (size_t i = 0; i < texts.size(); ++i) tokens.emplace_back(texts[i], static_cast<TokenId>(i));
  const ByteTrie trie(std::move(tokens));
  int found = -1;
  trie.Walk([&](int node, size_t depth) {
    if (trie.node(node).byte != static_cast<uint8_t>(text[depth - 1])) return false;
    if (depth == text.size()) found = node;
    return depth < text.size();
  });
  return SuffixTable(trie).of(found);
}

TEST(ByteTrieTest, KnowsTheTokensOfANodeAndOfThoseBelow) {
  const ByteTrie trie({{"b", 5}, {"ab", 1}, {"a", 2}, {"abc", 3}, {"ab", 4}, {"", 6}});
  std::vector<std::vector<TokenId>> own, all;
  std::vector<size_t> depths;
  trie.Walk([&](int node, size_t depth) {
    own.emplace_back(trie.tokens(node).begin(), trie.tokens(node).end());
    all.emplace_back();
    for (int i = trie.node(node).first_token; i < trie.node(node).last_token; ++i) all.back().push_back(trie.token(i));
    depths.push_back(depth);
    return true;
  });
  EXPECT_EQ(own, (std::vector<std::vector<TokenId>>{{2}, {1, 4}, {3}, {5}}));
  EXPECT_EQ(all, (std::vector<std::vector<TokenId>>{{2, 1, 4, 3}, {1, 4, 3}, {3}, {5}}));
  EXPECT_EQ(depths, (std::vector<size_t>{1, 2, 3, 1}));
}

TEST(SuffixTableTest, CountsTheCharactersBelowANode) {
  const Suffixes suffixes = SuffixesOf("a", {"a", "ab1", "a\xC3\xA9\xC3\xA9,", "b!"});
  EXPECT_EQ(suffixes.kinds, KindOf('z') | KindOf('9') | KindOf(',') | kBeyondAscii);
  EXPECT_EQ(suffixes.max_characters, 3);
  EXPECT_EQ(SuffixesOf("b", {"b", "ab"}).kinds, 0u);
}

TEST(SuffixTableTest, KnowsTextsThatAreNoWholeCharacters) {
  const auto is_broken = [](std::string_view text, std::vector<std::string_view> texts) {
    return (SuffixesOf(text, std::move(texts)).kinds & kBrokenText) != 0;
  };
  EXPECT_TRUE(is_broken("a", {"a\xC3"}));               // Ends within a character.
  EXPECT_TRUE(is_broken("a", {"a\xC3\xA9", "a\xC3"}));  // One of them does.
  EXPECT_TRUE(is_broken("a\xC3", {"a\xC3\xA9"}));       // The node itself is within a character.
  EXPECT_TRUE(is_broken("\xA9", {"\xA9 b"}));           // Begins within a character.
  EXPECT_TRUE(is_broken("a", {"a\xED\xA0\x80"}));       // A surrogate.
  EXPECT_TRUE(is_broken("a", {"ab\xF4\x90\x80\x80"}));  // Beyond the last character.
  EXPECT_FALSE(is_broken("a", {"ab\xF4\x8F\xBF\xBF", "a\xE0\xA0\x80"}));
}

TEST(StateRunsTest, AStringContinuesWithItsCharacters) {
  const auto automaton = *Compile({.kind = Source::Kind::kRegex, .text = "x[a-z\\u0080-\\u{10ffff}]{0,3}!?"});
  StateRuns runs;
  runs.SetAutomaton(*automaton);
  const StateId inside = automaton->Next(automaton->start(0), 'x');
  const CharacterKinds letters = KindOf('a');
  const auto fitting = [&](StateId state, CharacterKinds kinds, int max_characters, bool may_end) {
    return runs.CharactersThatFit(state, {kinds, max_characters}, may_end);
  };
  EXPECT_EQ(fitting(inside, letters | kBeyondAscii, 3, /*may_end=*/true), 3);
  EXPECT_EQ(fitting(inside, letters, 5, true), 3);
  EXPECT_EQ(fitting(inside, letters, 1, /*may_end=*/false), -1);  // The text may end there.
  EXPECT_EQ(fitting(inside, letters | KindOf('!'), 1, true), -1);
  EXPECT_EQ(fitting(inside, KindOf('?') | KindOf('A'), 2, true), 0);
  EXPECT_EQ(fitting(inside, kBrokenText, 0, true), -1);
  EXPECT_EQ(fitting(automaton->start(0), letters, 1, true), -1);  // It continues with x alone.
}

}  // namespace
}  // namespace quire::grammar
