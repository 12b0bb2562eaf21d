// SPDX-License-Identifier: Apache-2.0

#include "worker/guide_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
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
    return guide.ok() ? guide->grammar().begin->automaton()->serial() : 0;
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

// Starts a row with a guide of its own, and waits until the guide is compiled.
RowGuide StartCompiled(GuideBook* book, const std::string& regex, const std::string& owner = "") {
  RowGuide row = *book->Start(StartOf(regex, owner), "");
  while (!row.grammar().is_compiled()) book->WaitForGuide(std::chrono::seconds(1));
  return row;
}

TEST(GuideBookTest, RowsWaitForTheNextStepWhenOthersHaveUsedUpItsWork) {
  constexpr int kVocabSize = 50'000;
  constexpr int kNumRows = 8;
  GuideBook book(kVocabSize);
  book.SetMayPostpone(true);
  ASSERT_TRUE(book.SetVocabulary(Words(kVocabSize)).ok());
  std::vector<RowGuide> rows;
  for (int i = 0; i < kNumRows; ++i) rows.push_back(StartCompiled(&book, kExpensive, absl::StrCat(i)));
  RowGuide light = StartCompiled(&book, "[a-z]*");
  std::vector<uint32_t> mask;
  for (int i = 0; i < 3; ++i) {
    book.BeginStep();
    while (absl::IsUnavailable(light.FillMask(&mask))) book.BeginStep();
  }
  std::vector<int> num_draws(kNumRows);
  int num_postponed = 0;
  for (int step = 0; step < 100; ++step) {
    book.BeginStep();
    ASSERT_TRUE(light.FillMask(&mask).ok()) << "step " << step;
    light.Append(step);
    std::vector<int> order(kNumRows);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rows[a].turn() < rows[b].turn(); });
    for (const int i : order) {
      const absl::Status status = rows[i].FillMask(&mask);
      ASSERT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
      num_postponed += status.ok() ? 0 : 1;
      if (!status.ok()) continue;
      ++num_draws[i];
      rows[i].Append((step * 7919 + i) % (kVocabSize - 1));
    }
  }
  EXPECT_GT(num_postponed, 100);
  EXPECT_GT(*std::min_element(num_draws.begin(), num_draws.end()), 2);
  EXPECT_LT(*std::max_element(num_draws.begin(), num_draws.end()), 100);
}

TEST(GuideBookTest, ARowReadsManyTokensInSeveralSteps) {
  constexpr int kVocabSize = 50'000;
  GuideBook book(kVocabSize);
  book.SetMayPostpone(true);
  ASSERT_TRUE(book.SetVocabulary(Words(kVocabSize)).ok());
  v1::SequenceStart start = StartOf("[a-z]*");
  for (int i = 0; i < 60'000; ++i) start.add_token_ids(static_cast<uint32_t>(i % 1000));
  RowGuide row = *book.Start(start, "");
  while (!row.grammar().is_compiled()) book.WaitForGuide(std::chrono::seconds(1));
  std::vector<uint32_t> mask;
  int num_steps = 0;
  absl::Status status = absl::UnavailableError("");
  for (; absl::IsUnavailable(status) && num_steps < 100; ++num_steps) {
    book.BeginStep();
    status = row.FillMask(&mask);
  }
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GT(num_steps, 2);
}

TEST(GuideBookTest, AStepDoesNotWaitForTheCompilationOfAGuide) {
  GuideBook book(/*vocab_size=*/2);
  book.SetMayPostpone(true);
  ASSERT_TRUE(book.SetVocabulary(OneLetter()).ok());
  book.BeginStep();
  RowGuide row = *book.Start(StartOf("a+"), "");
  RowGuide same = *book.Start(StartOf("a+"), "");
  EXPECT_EQ(&row.grammar(), &same.grammar()) << "it is compiled once";
  std::vector<uint32_t> mask;
  EXPECT_TRUE(absl::IsUnavailable(row.FillMask(&mask))) << "the guide comes in the next step at the earliest";
  while (!row.grammar().is_compiled()) book.WaitForGuide(std::chrono::seconds(1));
  EXPECT_TRUE(row.FillMask(&mask).ok());
  EXPECT_TRUE(same.FillMask(&mask).ok());
}

TEST(GuideBookTest, AGuideThatDoesNotCompileFailsTheDrawOfItsRow) {
  GuideBook book(/*vocab_size=*/2);
  book.SetMayPostpone(true);
  ASSERT_TRUE(book.SetVocabulary(OneLetter()).ok());
  RowGuide row = StartCompiled(&book, "a(");
  std::vector<uint32_t> mask;
  EXPECT_TRUE(absl::IsInvalidArgument(row.FillMask(&mask)));
}

TEST(GuideBudgetTest, FewStepsPayForWhatWasTakenBeyondTheWorkOfOne) {
  GuideBudget budget(/*num_nodes=*/1000);
  GuideBudget::Account expensive;
  budget.BeginStep(/*may_postpone=*/false);
  budget.Spend(int64_t{1} << 50, &expensive);
  const GuideBudget::Account other;
  int num_steps = 0;
  do {
    budget.BeginStep(/*may_postpone=*/true);
    ASSERT_LE(++num_steps, GuideBudget::kMaxLateSteps);
  } while (budget.Allowed(/*is_light=*/true, /*work=*/0, other) <= 0);
  EXPECT_GT(num_steps, 1);
}

TEST(GuideBudgetTest, WhereNothingIsPostponedEachDrawMayVisitTheWholeTree) {
  constexpr int kNumNodes = 700'000;
  GuideBudget budget(kNumNodes);
  GuideBudget::Account first;
  budget.BeginStep(/*may_postpone=*/false);
  budget.Spend(budget.step_work(), &first);
  EXPECT_GE(budget.Allowed(/*is_light=*/true, /*work=*/0, GuideBudget::Account()), 2 * kNumNodes);
}

TEST(GuideCompilerTest, OwnersTakeTurnsAndJobsThatNobodyWantsAreDropped) {
  GuideCompiler compiler;
  const auto user = std::make_shared<int>();
  const auto add = [&](const std::string& key, const std::string& owner, const std::string& regex) {
    compiler.Add({.key = key, .owner = owner, .source = {grammar::Source::Kind::kRegex, regex}, .user = user});
  };
  // Most of the time the first one is still being compiled when the others come. The order does not depend on it.
  add("long", "acme", "(a|b)*a(a|b){13}");
  for (int i = 0; i < 3; ++i) add(absl::StrCat("acme", i), "acme", "a+");
  add("initech", "initech", "a+");
  for (int i = 0; i < 100; ++i) {
    compiler.Add({.key = "unwanted", .source = {grammar::Source::Kind::kRegex, "a+"}, .user = std::make_shared<int>()});
  }
  EXPECT_LE(compiler.num_waiting(), 5u);
  std::vector<std::string> keys;
  while (keys.size() < 5) {
    for (const CompiledGuide& guide : compiler.Take(std::chrono::seconds(1))) keys.push_back(guide.key);
  }
  const auto place = [&](const char* key) { return std::find(keys.begin(), keys.end(), key) - keys.begin(); };
  EXPECT_LT(place("initech"), place("acme2"));
  EXPECT_EQ(place("unwanted"), 5);
}

}  // namespace
}  // namespace quire
