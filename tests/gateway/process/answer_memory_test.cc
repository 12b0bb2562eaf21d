// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/answer_memory.h"

#include <memory>
#include <optional>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(AnswerMemoryTest, ACallerAloneMayTakeHalf) {
  AnswerMemory memory(100);
  const auto first = memory.Begin("a");
  const auto second = memory.Begin("a");
  EXPECT_TRUE(first->Resize(20));
  EXPECT_TRUE(second->Resize(30));
  EXPECT_FALSE(second->Resize(31)) << "51 are taken, 49 are left";
  EXPECT_TRUE(second->Resize(30)) << "less is always allowed";
}

TEST(AnswerMemoryTest, ACallerThatTakesAllItMayLeavesRoomForOthers) {
  AnswerMemory memory(100);
  const auto hog = memory.Begin("hog");
  EXPECT_TRUE(hog->Resize(50));
  const auto modest = memory.Begin("modest");
  EXPECT_TRUE(modest->Resize(25));
  EXPECT_FALSE(hog->Resize(51));
  EXPECT_TRUE(hog->Resize(10));
  EXPECT_TRUE(modest->Resize(45)) << "of 90";
}

TEST(AnswerMemoryTest, AnAnswerThatEndsFreesItsMemoryAlsoBehindTheGateway) {
  std::optional<AnswerMemory> memory(100);
  auto first = memory->Begin("a");
  EXPECT_TRUE(first->Resize(50));
  first = nullptr;
  first = memory->Begin("a");
  EXPECT_TRUE(first->Resize(50));
  memory.reset();
  first = nullptr;
}

}  // namespace
}  // namespace quire
