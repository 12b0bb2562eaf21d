// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/placement.h"

#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

constexpr int64_t kFewTokens = 8;

// A pool of 100 blocks of 4 tokens.
WorkerLoad Ready(int num_free_blocks, int64_t wanted_blocks = 0, int num_requests = 0) {
  return {.is_ready = true,
          .groups = CacheGroups(4),
          .num_blocks = 100,
          .num_free_blocks = num_free_blocks,
          .wanted_blocks = wanted_blocks,
          .num_requests = num_requests};
}

WorkerLoad Lost(WorkerLoad worker, bool may_return) {
  worker.is_ready = false;
  worker.may_return = may_return;
  return worker;
}

std::optional<int> Choose(const std::vector<WorkerLoad>& workers, int64_t num_tokens = kFewTokens) {
  return ChooseWorker(workers, {.num_prompt_tokens = 100, .max_blocks = [=](const CacheGroups& groups) {
                                  return groups.NumBlocks(num_tokens - 1);
                                }});
}

TEST(PlacementTest, APoolHoldsWhatFitsIntoTheShareOfTheTenant) {
  PlacementRequest request{.num_prompt_tokens = 100, .max_blocks = [](const CacheGroups&) { return 50; }};
  EXPECT_TRUE(CanHold(Ready(100), request));
  request.max_blocks_share = 0.5;
  EXPECT_TRUE(CanHold(Ready(100), request));
  request.max_blocks_share = 0.49;
  EXPECT_FALSE(CanHold(Ready(100), request));
}

TEST(PlacementTest, ASequenceHasAsManyTokensAsThePoolHasRoomForInAllCacheGroups) {
  EXPECT_EQ(MostTokens(Ready(100)), 400);
  // A window of 10 tokens and slices of 8 take at most six sheets of two blocks: 18 tokens, of which the first is the
  // last of its sheet.
  WorkerLoad windows = Ready(100);
  windows.groups = CacheGroups(4, {{}, {.window_tokens = 10, .blocks_per_sheet = 2}}, /*max_slice_tokens=*/8);
  EXPECT_EQ(MostTokens(windows), (100 - 2 * 6) * 4);
  windows.num_blocks = 17;
  EXPECT_EQ(MostTokens(windows), 5 * 4) << "five blocks and five sheets";
}

TEST(PlacementTest, NobodyIsChosenWhenNobodyIsReadyOrMayReturn) {
  const WorkerLoad gone = Lost(Ready(100), false);
  EXPECT_EQ(Choose({}), std::nullopt);
  EXPECT_EQ(Choose({gone}), std::nullopt);
  EXPECT_EQ(Choose({gone, Ready(1, 0, 9)}), 1);
}

TEST(PlacementTest, ALostWorkerGetsRequestsOnlyWhenNobodyIsReady) {
  const WorkerLoad lost = Lost(Ready(100), true);
  EXPECT_EQ(Choose({lost}), 0);
  EXPECT_EQ(Choose({lost, Ready(1, 7, 9)}), 1);
}

TEST(PlacementTest, AWorkerOfAnotherGenerationIsNeverChosen) {
  WorkerLoad other = Ready(100);
  other.generation = GenerationId{2};
  EXPECT_EQ(Choose({other}), std::nullopt);
  EXPECT_EQ(Choose({other, Ready(1, 7, 9)}), 1);
}

TEST(PlacementTest, AnOverdueWorkerGetsRequestsOnlyWhenNoOtherIsReady) {
  WorkerLoad overdue = Ready(100);
  overdue.is_overdue = true;
  EXPECT_EQ(Choose({overdue}), 0);
  EXPECT_EQ(Choose({overdue, Ready(1, 7, 9)}), 1);
  EXPECT_EQ(Choose({Lost(Ready(100), true), overdue}), 1);
}

TEST(PlacementTest, LargestFreeShareWinsWhenQueuedRequestsAreCounted) {
  EXPECT_EQ(Choose({Ready(10), Ready(11)}), 1);
  EXPECT_EQ(Choose({Ready(10), Ready(50, 41)}), 0);
  EXPECT_EQ(Choose({Ready(0, 20), Ready(0, 19)}), 1);
}

TEST(PlacementTest, ASmallWorkerGetsItsPart) {
  WorkerLoad small = Ready(10);
  small.num_blocks = 10;
  EXPECT_EQ(Choose({Ready(99), small}), 1) << "99 of 100 against 10 of 10";
  small.num_free_blocks = 9;
  EXPECT_EQ(Choose({Ready(91), small}), 0) << "91 of 100 against 9 of 10";
}

TEST(PlacementTest, TieGoesToFewerRequestsThenToLowerIndex) {
  EXPECT_EQ(Choose({Ready(10, 0, 3), Ready(12, 2, 2), Ready(10, 0, 2)}), 1);
  EXPECT_EQ(Choose({Ready(10, 0, 2), Ready(10, 0, 2)}), 0);
}

TEST(PlacementTest, ARequestGoesWhereThePoolCanHoldIt) {
  WorkerLoad small = Ready(10);
  small.num_blocks = 10;
  EXPECT_EQ(Choose({small, Ready(1, 50, 9)}, 41), 0) << "40 tokens are stored, 10 blocks of 4";
  EXPECT_EQ(Choose({small, Ready(1, 50, 9)}, 42), 1);
  EXPECT_EQ(Choose({small, Lost(Ready(100), true)}, 42), 1)
      << "the request can wait for the lost worker; the small one can never hold it";
  EXPECT_EQ(Choose({small, Ready(1, 50, 9)}, 1000), 1)
      << "no pool can hold it; the scheduler of the largest refuses it";
}

TEST(PlacementTest, AWholeCachedPromptIsWorthAWholeWorker) {
  WorkerLoad cached = Ready(30);
  cached.num_cached_tokens = 80;
  EXPECT_EQ(Choose({Ready(100), cached}), 1) << "0.8 of the prompt against 0.7 of the blocks";
  cached.num_free_blocks = 10;
  EXPECT_EQ(Choose({Ready(100), cached}), 0) << "0.8 of the prompt against 0.9 of the blocks";
}

TEST(PlacementTest, AWorkerOnTrialGetsRequestsOnlyWhenNoOtherIsReady) {
  WorkerLoad on_trial = Ready(100);
  on_trial.is_on_trial = true;
  EXPECT_EQ(Choose({on_trial}), 0);
  EXPECT_EQ(Choose({on_trial, Ready(1, 7, 9)}), 1);
  EXPECT_EQ(Choose({Lost(Ready(100), true), on_trial}), 1);
}

TEST(PlacementTest, AMovingRequestTakesItsRowsAndBlocksOrNone) {
  const PlacementRequest request{
      .num_prompt_tokens = 8, .num_rows = 4, .max_blocks = [](const CacheGroups&) { return 100; }};
  const TargetNeeds needs{.num_blocks = [](const CacheGroups& groups) { return 80 / groups.block_size(); }};
  WorkerLoad worker = Ready(30, /*wanted_blocks=*/10, /*num_requests=*/2);
  worker.max_sequences = 10;
  worker.num_rows = 6;
  EXPECT_TRUE(CanTakeOver(worker, request, needs)) << "20 of 20 blocks and 4 of 4 rows";
  worker.num_rows = 7;
  EXPECT_FALSE(CanTakeOver(worker, request, needs)) << "two requests can have 7 rows";
  EXPECT_TRUE(CanTakeOver(worker, request, {})) << "it may wait there";
  worker.num_rows = 6;
  worker.num_free_blocks = 29;
  EXPECT_FALSE(CanTakeOver(worker, request, needs));
  EXPECT_TRUE(CanTakeOver(worker, request, {}));
  worker.max_sequences = 3;
  EXPECT_FALSE(CanTakeOver(worker, request, {})) << "it could never run";
}

TEST(PlacementTest, AnIdleWorkerHasNoWaitingRequestsAndStaysFarFromFull) {
  const PlacementRequest request{.num_prompt_tokens = 8, .max_blocks = [](const CacheGroups&) { return 20; }};
  const TargetNeeds needs{.num_blocks = [](const CacheGroups&) { return 10; }, .is_idle = true};
  WorkerLoad worker = Ready(40);
  EXPECT_TRUE(CanTakeOver(worker, request, needs));
  worker.num_waiting = 1;
  EXPECT_FALSE(CanTakeOver(worker, request, needs));
  EXPECT_FALSE(CanTakeOver(Ready(39), request, needs)) << "71 of 100 blocks would be taken";
  EXPECT_FALSE(CanTakeOver(Ready(50, /*wanted_blocks=*/11), request, needs));
}

TEST(PlacementTest, AMovingRequestAvoidsWorkersThatAreLateUnlessItAcceptsDelay) {
  const PlacementRequest request{.max_blocks = [](const CacheGroups&) { return 1; }};
  WorkerLoad overdue = Ready(100);
  overdue.is_overdue = true;
  WorkerLoad on_trial = Ready(100);
  on_trial.is_on_trial = true;
  for (const WorkerLoad& worker : {overdue, on_trial}) {
    EXPECT_FALSE(CanTakeOver(worker, request, {}));
    EXPECT_TRUE(CanTakeOver(worker, request, {.accepts_delay = true}));
  }
  WorkerLoad drained = Ready(100);
  drained.is_drained_by_operator = true;
  for (const WorkerLoad& worker : {drained, Lost(Ready(100), true)}) {
    EXPECT_FALSE(CanTakeOver(worker, request, {.accepts_delay = true}));
  }
}

TEST(PlacementTest, AMovingRequestChangesItsNumericsOnlyIfNoWorkerOfItsOwnIsReady) {
  const PlacementRequest request{
      .generation = GenerationId{1}, .num_prompt_tokens = 8, .max_blocks = [](const CacheGroups&) { return 3; }};
  WorkerLoad own = Ready(10);
  own.generation = GenerationId{1};
  own.family = FamilyId{7};
  WorkerLoad related = Ready(100);
  related.generation = GenerationId{2};
  related.family = FamilyId{7};
  WorkerLoad foreign = Ready(100);
  foreign.generation = GenerationId{3};
  foreign.family = FamilyId{8};
  const auto choose = [&](std::vector<WorkerLoad> workers, const TargetNeeds& needs) -> std::optional<int> {
    if (!KeepTargets(request, needs, absl::MakeSpan(workers))) return std::nullopt;
    return ChooseWorker(workers, request);
  };
  const TargetNeeds exact;
  const TargetNeeds approximate{.family = FamilyId{7}};
  EXPECT_EQ(choose({foreign, related}, exact), std::nullopt);
  EXPECT_EQ(choose({foreign, related}, approximate), 1);
  EXPECT_EQ(choose({foreign, related, own}, approximate), 2) << "though it is fuller";
  own.is_overdue = true;
  EXPECT_EQ(choose({foreign, related, own}, approximate), std::nullopt) << "it may soon be there again";
  own.is_ready = false;
  EXPECT_EQ(choose({foreign, related, own}, approximate), 1);
}

TEST(PlacementTest, RowsCountWhenTheyAreScarcerThanBlocks) {
  WorkerLoad busy = Ready(100, 0, 4);
  busy.num_rows = 8;
  busy.max_sequences = 10;
  EXPECT_EQ(Choose({busy, Ready(50)}), 1);
}

}  // namespace
}  // namespace quire
