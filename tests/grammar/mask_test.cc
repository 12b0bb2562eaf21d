// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grammar/equal_states.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/token_masks.h"
#include "gtest/gtest.h"
#include "tests/grammar/fill_mask.h"
#include "tests/grammar/random_text.h"
#include "tests/grammar/trial_sources.h"
#include "tests/grammar/trial_vocabulary.h"
#include "tests/random.h"

namespace quire::grammar {
namespace {

using ::testing::ElementsAre;

bool IsSet(const std::vector<uint32_t>& mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

// Walks through random texts and compares every mask with what the matcher says of every token.
void CheckMasks(const Source& source, TokenMasks* masks) {
  SCOPED_TRACE(source.text);
  const auto automaton = Compile(source);
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  Random random(7);
  std::vector<uint32_t> mask(masks->num_words());
  for (int walk = 0; walk < 4; ++walk) {
    Matcher matcher(*automaton);
    for (int step = 0; step < 10; ++step) {
      FillMask(matcher, masks, &mask);
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < masks->tokens().vocab_size(); ++token) {
        const std::string_view bytes = masks->tokens().bytes(token);
        Matcher fork = matcher;
        const bool is_right = masks->tokens().is_end(token) ? matcher.can_end() : !bytes.empty() && fork.Accept(bytes);
        ASSERT_EQ(IsSet(mask, token), is_right) << "token \"" << bytes << "\" in step " << step << " of " << walk;
        if (is_right && !bytes.empty()) allowed.push_back(token);
      }
      if (allowed.empty()) break;
      const TokenId next = allowed[static_cast<size_t>(random.Below(static_cast<int>(allowed.size())))];
      ASSERT_TRUE(matcher.Accept(masks->tokens().bytes(next)));
    }
  }
}

TEST(MaskTest, MasksAllowExactlyTheTokensThatTheMatcherAccepts) {
  TokenMasks masks(TrialVocabulary(500, 3));
  for (const Source& source : TrialSources()) CheckMasks(source, &masks);
}

// Tokens that begin or end within a character, beside whole ones.
TEST(MaskTest, PartsOfCharactersAreNoCharacters) {
  std::vector<std::string> tokens = {"",
                                     "a",
                                     "\"",
                                     "a\xC3",
                                     "ab\xC3\xA9",
                                     "a\xE4\xB8",
                                     "\xA9",
                                     "\xA9\xC3",
                                     "\xC3\xA9\xC3",
                                     "b\xC0",
                                     "\xE0\x80\x80",
                                     "\xF0\x9F\x98\x80",
                                     "\xF4\x90\x80\x80",
                                     "\xED\xA0\x80"};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  TokenMasks masks(std::make_shared<TokenTable>(std::move(tokens), std::vector<TokenId>{0}));
  for (const Source& source : TrialSources()) CheckMasks(source, &masks);
}

TEST(MaskTest, MasksAreRightWhenThereIsNoMemoryForThem) {
  TokenMasks masks(TrialVocabulary(500, 3), /*max_bytes=*/0);
  for (const Source& source : TrialSources()) CheckMasks(source, &masks);
}

// Fill forgets all masks when their memory is full, so what is prepared must leave room.
TEST(MaskTest, PreparedMasksAreStillThereWhenTheyAreNeeded) {
  const auto automaton =
      *Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"type": "string", "maxLength": 40})"});
  TokenMasks masks(TrialVocabulary(3000, 3), /*max_bytes=*/8000);
  PrepareAll(automaton, &masks);
  const size_t num_bytes = masks.num_bytes();
  EXPECT_GT(num_bytes, 4000u);
  std::vector<uint32_t> mask(masks.num_words());
  FillMask(Matcher(automaton), &masks, &mask);
  EXPECT_GE(masks.num_bytes(), num_bytes);
}

TEST(MaskTest, PreparedMasksAreThoseThatAreNeeded) {
  const auto automaton = *Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"type": "string", "maxLength": 8})"});
  TokenMasks prepared(TrialVocabulary(3000, 3));
  PrepareAll(automaton, &prepared);
  const size_t num_bytes = prepared.num_bytes();
  TokenMasks masks(TrialVocabulary(3000, 3));
  std::vector<uint32_t> mask, other;
  Matcher matcher(automaton);
  ASSERT_TRUE(matcher.Accept("\""));
  for (int i = 0; i <= 8; ++i, matcher.Accept("x")) {
    FillMask(matcher, &masks, &mask);
    FillMask(matcher, &prepared, &other);
    EXPECT_EQ(mask, other);
  }
  // Only the mask behind the last character, where nothing but the quote may follow, was not prepared.
  EXPECT_GT(num_bytes, masks.num_bytes() * 9 / 10);
  EXPECT_LT(prepared.num_bytes() - num_bytes, num_bytes / 20);
}

TEST(MaskTest, GrammarsShareTheMasksOfEqualRules) {
  TokenMasks masks(TrialVocabulary(30'000, 3));
  std::vector<uint32_t> mask(masks.num_words());
  const auto grow = [&](const char* schema) {
    Matcher matcher(*Compile({.kind = Source::Kind::kJsonSchema, .text = schema}));
    const size_t before = masks.num_bytes();
    EXPECT_TRUE(matcher.Accept("{\"first\":\"te"));
    FillMask(matcher, &masks, &mask);
    return masks.num_bytes() - before;
  };
  const char* schema = R"({"properties": {"first": {"type": "string"}, "x": {"type": "string"}}})";
  const char* other = R"({"properties": {"first": {"type": "string"}, "yz": {"type": "string"}}})";
  const size_t mask_bytes = masks.num_words() * 4;
  EXPECT_GT(grow(schema), mask_bytes);
  EXPECT_LT(grow(other), mask_bytes);
}

TEST(MaskTest, GrammarsOfDifferentOwnersShareNoMasks) {
  TokenMasks masks(TrialVocabulary(30'000, 3));
  std::vector<uint32_t> mask;
  const auto grow = [&](std::string_view owner) {
    Matcher matcher(*Compile({.kind = Source::Kind::kRegex, .text = "[a-z ]*"}, owner));
    const size_t before = masks.num_bytes();
    FillMask(matcher, &masks, &mask);
    return masks.num_bytes() - before;
  };
  const size_t first = grow("4:acme");
  EXPECT_GT(first, masks.num_words() * 4);
  EXPECT_EQ(grow("4:hool"), first);
  EXPECT_EQ(grow("4:acme"), 0u);
}

TEST(MaskTest, FillStopsWhenItsWorkIsUsedUp) {
  TokenMasks masks(TrialVocabulary(3000, 3));
  Matcher matcher(*Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"type": "object"})"}));
  std::vector<uint32_t> mask(masks.num_words()), whole;
  int64_t work = 300;
  EXPECT_FALSE(masks.Fill(matcher, absl::MakeSpan(mask), &work));
  EXPECT_LT(work, 0);
  EXPECT_GT(work, -1000) << "it stops soon";
  const int64_t first = FillMask(matcher, &masks, &whole);
  const int64_t second = FillMask(matcher, &masks, &mask);
  EXPECT_EQ(mask, whole);
  EXPECT_LT(second, first / 2) << "what was built is kept";
  work = second;
  EXPECT_TRUE(masks.Fill(matcher, absl::MakeSpan(mask), &work));
  EXPECT_EQ(work, 0);
}

// A guide with many masks must not drive out the few masks of another one that is in use.
TEST(MaskTest, MasksThatNeedMuchMemoryAreForgottenFirst) {
  TokenMasks masks(TrialVocabulary(3000, 3), /*max_bytes=*/100'000);
  Matcher small(*Compile({.kind = Source::Kind::kRegex, .text = "[a-z ]*"}));
  const auto large = *Compile({.kind = Source::Kind::kRegex, .text = "[^b]{1000}"});
  std::vector<uint32_t> mask;
  FillMask(small, &masks, &mask);
  const int64_t work = FillMask(small, &masks, &mask);
  Matcher matcher(large);
  for (int i = 0; i < 1000; ++i) {
    FillMask(matcher, &masks, &mask);
    ASSERT_TRUE(matcher.Accept("a"));
    ASSERT_LE(masks.num_bytes(), 120'000u);
    ASSERT_EQ(FillMask(small, &masks, &mask), work) << "after " << i;
  }
}

TEST(EqualStatesTest, StatesAreEqualIfNoTextOfThisLengthTellsThemApart) {
  const auto automaton = *Compile({.kind = Source::Kind::kRegex, .text = "a{10}b"});
  int64_t work = kMaxEqualStatesWork;
  const std::vector<StateId> equal = FindEqualStates(*automaton, 0, /*max_bytes=*/3, &work);
  EXPECT_LT(work, kMaxEqualStatesWork);
  // State i has read i letters, and three bytes lead from state 8 to the end.
  EXPECT_THAT(equal, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 8, 9, 10, 11));
  EXPECT_EQ(FindEqualStates(*automaton, 0, /*max_bytes=*/2, &work)[8], 0);
  EXPECT_THAT(FindEqualStates(*automaton, 0, /*max_bytes=*/0, &work), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11));
}

TEST(EqualStatesTest, TheStatesOfALongStringShareAMask) {
  const auto automaton =
      *Compile({.kind = Source::Kind::kJsonSchema, .text = R"({"type": "string", "maxLength": 2000})"});
  TokenMasks masks(TrialVocabulary(3000, 3));
  std::vector<uint32_t> mask;
  Matcher matcher(automaton);
  ASSERT_TRUE(matcher.Accept("\""));
  FillMask(matcher, &masks, &mask);
  const size_t num_bytes = masks.num_bytes();
  for (int i = 0; i < 1900; ++i) {
    ASSERT_TRUE(matcher.Accept("x"));
    FillMask(matcher, &masks, &mask);
  }
  EXPECT_EQ(masks.num_bytes(), num_bytes);
  ASSERT_TRUE(matcher.Accept(std::string(99, 'x')));
  FillMask(matcher, &masks, &mask);
  EXPECT_GT(masks.num_bytes(), num_bytes);
}

}  // namespace
}  // namespace quire::grammar
