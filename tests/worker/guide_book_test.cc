// SPDX-License-Identifier: Apache-2.0

#include "worker/guide_book.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

// Returns a vocabulary with the token "a" and an end token.
v1::Vocabulary OneLetter() {
  v1::Vocabulary vocabulary;
  vocabulary.set_bytes("a");
  vocabulary.add_lengths(1);
  vocabulary.add_lengths(0);
  vocabulary.add_end_token_ids(1);
  return vocabulary;
}

v1::SequenceStart StartOf(const std::string& regex, const std::string& owner = "") {
  v1::SequenceStart start;
  start.mutable_sampling()->mutable_guided()->set_regex(regex);
  start.mutable_sampling()->set_guide_owner(owner);
  return start;
}

TEST(GuideBookTest, AGrammarIsCompiledOnceWhileItIsOneOfTheLastThatWereUsed) {
  GuideBook book(/*vocab_size=*/2);
  ASSERT_TRUE(book.SetVocabulary(OneLetter()).ok());
  // Returns the number of the automaton, which changes when the grammar is compiled again.
  const auto use = [&](int grammar) -> uint64_t {
    const absl::StatusOr<RowGuide> guide = book.Start(StartOf(absl::StrCat("a{", grammar, "}")), "starts[0]");
    EXPECT_TRUE(guide.ok()) << guide.status();
    return guide.ok() ? guide->grammar().automaton->serial() : 0;
  };
  constexpr int kMax = GuideBook::kMaxGrammars;
  const uint64_t first = use(1);
  const uint64_t second = use(2);
  const uint64_t third = use(3);
  for (int grammar = 4; grammar <= kMax; ++grammar) use(grammar);
  EXPECT_EQ(use(1), first);
  use(kMax + 1);
  EXPECT_EQ(use(1), first) << "it was compiled first, and it is used most";
  EXPECT_EQ(use(3), third);
  EXPECT_NE(use(2), second) << "it was not used for the longest time";
}

TEST(GuideBookTest, OwnersShareNoGrammars) {
  GuideBook book(/*vocab_size=*/2);
  ASSERT_TRUE(book.SetVocabulary(OneLetter()).ok());
  const RowGuide first = *book.Start(StartOf("a+", "4:acme"), "");
  const RowGuide other = *book.Start(StartOf("a+", "7:initech"), "");
  EXPECT_NE(&first.grammar(), &other.grammar());
  EXPECT_EQ(&first.grammar(), &book.Start(StartOf("a+", "4:acme"), "")->grammar());
}

// 200,000 tokens, so that each new mask is much work.
TEST(GuideBookTest, RowsOfAGuideThatTakesTooMuchWorkFailAndOthersGoOn) {
  constexpr int kVocabSize = 200'000;
  v1::Vocabulary vocabulary;
  for (int i = 0; i < kVocabSize - 1; ++i) {
    std::string token;
    for (int rest = i; rest > 0; rest /= 26) token += static_cast<char>('a' + rest % 26);
    vocabulary.mutable_bytes()->append(token);
    vocabulary.add_lengths(static_cast<uint32_t>(token.size()));
  }
  vocabulary.add_lengths(0);
  vocabulary.add_end_token_ids(kVocabSize - 1);
  GuideBook book(kVocabSize);
  ASSERT_TRUE(book.SetVocabulary(vocabulary).ok());
  RowGuide cheap = *book.Start(StartOf("a*"), "");
  RowGuide expensive = *book.Start(StartOf("([^b]|bb)*c([^b]|bb){12}"), "");
  std::vector<uint32_t> mask;
  absl::Status status;
  int num_steps = 0;
  for (; status.ok() && num_steps < 10'000; ++num_steps) {
    book.BeginStep();
    status = expensive.FillMask(&mask);
    expensive.Append(1 + 25 + num_steps * 7919 % (kVocabSize - 100));
    ASSERT_TRUE(cheap.FillMask(&mask).ok()) << "step " << num_steps;
    cheap.Append(26);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GT(num_steps, 10);
}

}  // namespace
}  // namespace quire
