// SPDX-License-Identifier: Apache-2.0

#include "worker/guide_book.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

TEST(GuideBookTest, AGrammarIsCompiledOnceWhileItIsOneOfTheLastThatWereUsed) {
  GuideBook book(/*vocab_size=*/2);
  v1::Vocabulary vocabulary;
  vocabulary.set_bytes("a");
  vocabulary.add_lengths(1);
  vocabulary.add_lengths(0);
  vocabulary.add_end_token_ids(1);
  ASSERT_TRUE(book.SetVocabulary(vocabulary).ok());
  // Returns the number of the automaton, which changes when the grammar is compiled again.
  const auto use = [&](int grammar) -> uint64_t {
    v1::SequenceStart start;
    start.mutable_sampling()->mutable_guided()->set_regex(absl::StrCat("a{", grammar, "}"));
    const absl::StatusOr<RowGuide> guide = book.Start(start, "starts[0]");
    EXPECT_TRUE(guide.ok()) << guide.status();
    return guide.ok() ? guide->automaton().serial() : 0;
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

}  // namespace
}  // namespace quire
