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

// The tokens are words of seven letters, so that each new mask is much work.
v1::Vocabulary Words(int vocab_size) {
  constexpr uint64_t kNumWords = 8'031'810'176;  // 26^7
  v1::Vocabulary vocabulary;
  for (int i = 0; i < vocab_size - 1; ++i) {
    uint64_t rest = static_cast<uint64_t>(i) * 40'000'003 % kNumWords;
    for (int k = 0; k < 7; ++k, rest /= 26) vocabulary.mutable_bytes()->push_back(static_cast<char>('a' + rest % 26));
    vocabulary.add_lengths(7);
  }
  vocabulary.add_lengths(0);
  vocabulary.add_end_token_ids(static_cast<uint32_t>(vocab_size - 1));
  return vocabulary;
}

// Its states remember which of the last nine letters were in the first half, and most of them need a mask of their own.
constexpr char kExpensive[] = "[a-z]*[a-m][a-z]{8}";

TEST(GuideBookTest, RowsOfAGuideThatTakesTooMuchWorkFailAndOthersGoOn) {
  constexpr int kVocabSize = 50'000;
  GuideBook book(kVocabSize);
  ASSERT_TRUE(book.SetVocabulary(Words(kVocabSize)).ok());
  RowGuide cheap = *book.Start(StartOf("[a-z]*"), "");
  RowGuide expensive = *book.Start(StartOf(kExpensive), "");
  std::vector<uint32_t> mask;
  absl::Status status;
  int num_steps = 0;
  for (; status.ok() && num_steps < 2000; ++num_steps) {
    book.BeginStep();
    status = expensive.FillMask(&mask);
    expensive.Append(num_steps * 7919 % (kVocabSize - 1));
    ASSERT_TRUE(cheap.FillMask(&mask).ok()) << "step " << num_steps;
    cheap.Append(num_steps);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GT(num_steps, 10);
  EXPECT_LT(num_steps, 1000);
  // Rows that start with the same guide share its account.
  book.BeginStep();
  RowGuide same = *book.Start(StartOf(kExpensive), "");
  for (int i = 0; i < 20; ++i) same.Append(i * 104'729 % (kVocabSize - 1));
  EXPECT_FALSE(same.FillMask(&mask).ok());
  RowGuide other = *book.Start(StartOf(kExpensive, "7:initech"), "");
  EXPECT_TRUE(other.FillMask(&mask).ok());
}

TEST(GuideBookTest, AllMasksOfAStepTogetherTakeLimitedWork) {
  constexpr int kVocabSize = 50'000;
  GuideBook book(kVocabSize);
  ASSERT_TRUE(book.SetVocabulary(Words(kVocabSize)).ok());
  book.BeginStep();
  std::vector<uint32_t> mask;
  int num_filled = 0;
  int num_rows = 0;
  // Each row has another guide with another account.
  for (; num_filled == num_rows && num_rows < 1000; ++num_rows) {
    RowGuide row = *book.Start(StartOf(kExpensive, absl::StrCat(num_rows)), "");
    absl::Status status;
    for (int i = 0; status.ok() && i < 30; ++i) {
      status = row.FillMask(&mask);
      row.Append(i * 7919 % (kVocabSize - 1));
    }
    num_filled += status.ok() ? 1 : 0;
  }
  EXPECT_LT(num_rows, 10);
  book.BeginStep();
  RowGuide row = *book.Start(StartOf(kExpensive, "later"), "");
  EXPECT_TRUE(row.FillMask(&mask).ok());
}

}  // namespace
}  // namespace quire
