#include "kv_manager/placement.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

WorkerLoad Ready(int num_free_blocks, int64_t wanted_blocks, int num_requests) {
  return {.is_ready = true,
          .num_free_blocks = num_free_blocks,
          .wanted_blocks = wanted_blocks,
          .num_requests = num_requests};
}

TEST(PlacementTest, NobodyIsChosenWhenNobodyIsReady) {
  WorkerLoad away = Ready(100, 0, 0);
  away.is_ready = false;
  EXPECT_EQ(ChooseWorker({}), std::nullopt);
  EXPECT_EQ(ChooseWorker({away}), std::nullopt);
  EXPECT_EQ(ChooseWorker({away, Ready(1, 0, 9)}), 1);
}

TEST(PlacementTest, TheMostBlocksAfterTheQueueWin) {
  EXPECT_EQ(ChooseWorker({Ready(10, 0, 5), Ready(11, 0, 5)}), 1);
  EXPECT_EQ(ChooseWorker({Ready(10, 0, 5), Ready(50, 41, 5)}), 0);
  EXPECT_EQ(ChooseWorker({Ready(0, 20, 5), Ready(0, 19, 5)}), 1);
}

TEST(PlacementTest, EqualOnesAreToldApartByRequestsThenByIndex) {
  EXPECT_EQ(ChooseWorker({Ready(10, 0, 3), Ready(12, 2, 2), Ready(10, 0, 2)}), 1);
  EXPECT_EQ(ChooseWorker({Ready(10, 0, 2), Ready(10, 0, 2)}), 0);
}

TEST(PlacementTest, ARequestWantsItsPromptAndOneToken) {
  EXPECT_EQ(BlocksWanted(1, 16), 1);
  EXPECT_EQ(BlocksWanted(15, 16), 1);
  EXPECT_EQ(BlocksWanted(16, 16), 2);
}

}  // namespace
}  // namespace quire
