// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/prefix_promises.h"

#include <vector>

#include <gtest/gtest.h>

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

int NumTokens(const PrefixPromises& promises, const Tokens& tokens) {
  return promises.NumTokens("", tokens, static_cast<int>(tokens.size()));
}

TEST(PrefixPromisesTest, PromptReachesAsFarIntoAPromiseAsItAgreesInWholeBlocks) {
  PrefixPromises promises(2);
  promises.Add(SequenceId{1}, "", {1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(NumTokens(promises, {1, 2, 3, 4, 5, 6, 7, 8}), 6);
  EXPECT_EQ(NumTokens(promises, {1, 2, 3, 4, 5, 9}), 4);
  EXPECT_EQ(NumTokens(promises, {1, 2, 3}), 2);
  EXPECT_EQ(NumTokens(promises, {1, 9, 3}), 0);
  EXPECT_EQ(NumTokens(promises, {}), 0);
}

TEST(PrefixPromisesTest, LongPromptsAreComparedTokenByToken) {
  Tokens promised;
  for (int i = 0; i < 300; ++i) promised.push_back(i);
  PrefixPromises promises(1);
  promises.Add(SequenceId{1}, "", promised);
  EXPECT_EQ(NumTokens(promises, promised), 300);
  for (int i = 0; i < 300; ++i) {
    Tokens tokens = promised;
    tokens[i] = -1;
    EXPECT_EQ(NumTokens(promises, tokens), i);
  }
}

TEST(PrefixPromisesTest, LimitCutsThePrompt) {
  PrefixPromises promises(2);
  promises.Add(SequenceId{1}, "", {1, 2, 3, 4});
  const Tokens tokens = {1, 2, 3, 4};
  EXPECT_EQ(promises.NumTokens("", tokens, 3), 2);
  EXPECT_EQ(promises.NumTokens("", tokens, 0), 0);
}

TEST(PrefixPromisesTest, LongestOfManyPromisesCounts) {
  PrefixPromises promises(1);
  promises.Add(SequenceId{1}, "", {1, 2, 3});
  promises.Add(SequenceId{2}, "", {1, 2, 9, 9});
  promises.Add(SequenceId{3}, "", {1});
  promises.Add(SequenceId{4}, "", {1, 2, 3});
  EXPECT_EQ(NumTokens(promises, {1, 2, 3, 4}), 3);
  EXPECT_EQ(NumTokens(promises, {1, 2, 9}), 3);
  EXPECT_EQ(NumTokens(promises, {1, 2, 5}), 2);
  EXPECT_EQ(NumTokens(promises, {0}), 0);
  EXPECT_EQ(NumTokens(promises, {2}), 0);
}

TEST(PrefixPromisesTest, SaltsNeverMeet) {
  PrefixPromises promises(1);
  promises.Add(SequenceId{1}, "b", {1, 2});
  const Tokens tokens = {1, 2};
  EXPECT_EQ(promises.NumTokens("b", tokens, 2), 2);
  EXPECT_EQ(promises.NumTokens("a", tokens, 2), 0);
  EXPECT_EQ(promises.NumTokens("c", tokens, 2), 0);
}

TEST(PrefixPromisesTest, DroppedPromiseLeavesAnEqualOneOfAnotherSequence) {
  PrefixPromises promises(1);
  promises.Add(SequenceId{1}, "", {1, 2});
  promises.Add(SequenceId{2}, "", {1, 2});
  promises.Drop(SequenceId{1});
  promises.Drop(SequenceId{1});
  promises.Drop(SequenceId{7});
  EXPECT_EQ(NumTokens(promises, {1, 2}), 2);
  promises.Drop(SequenceId{2});
  EXPECT_EQ(NumTokens(promises, {1, 2}), 0);
}

TEST(PrefixPromisesTest, LaterPromiseOfASequenceReplacesTheEarlier) {
  PrefixPromises promises(2);
  promises.Add(SequenceId{1}, "", {1, 2, 3, 4});
  promises.Add(SequenceId{1}, "", {5, 6});
  EXPECT_EQ(NumTokens(promises, {1, 2}), 0);
  EXPECT_EQ(NumTokens(promises, {5, 6}), 2);
  promises.Add(SequenceId{1}, "", {5});
  EXPECT_EQ(NumTokens(promises, {5, 6}), 0) << "less than a block is no promise";
}

TEST(PrefixPromisesTest, ClearDropsAll) {
  PrefixPromises promises(1);
  promises.Add(SequenceId{1}, "", {1});
  promises.Clear();
  EXPECT_EQ(NumTokens(promises, {1}), 0);
}

}  // namespace
}  // namespace quire
