// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/wait_report.h"

#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

using Kind = WaitReason::Kind;

v1::ExplainWaitResponse Encode(const WaitReason& reason, const WaitReport& rest = {.worker = "host:1"}) {
  WaitReport report = rest;
  report.reason = reason;
  v1::ExplainWaitResponse response;
  EncodeWait(report, &response);
  return response;
}

std::string Words(const WaitReason& reason, const WaitReport& rest = {.worker = "host:1"}) {
  return Encode(reason, rest).explanation();
}

TEST(WaitReportTest, BlocksThatAreMissingAreCounted) {
  const WaitReason reason = {
      .kind = Kind::kBlocks, .num_ahead = 3, .num_blocks = 30, .num_free_blocks = 18, .num_watermark_blocks = 5};
  EXPECT_EQ(Words(reason),
            "waits for 17 more KV blocks: 30 needed, and 5 stay free for running requests to grow; 18 are free; "
            "3 requests are ahead");
  EXPECT_EQ(Words({.kind = Kind::kBlocks, .num_blocks = 4, .num_free_blocks = 3},
                  {.worker = "host:1", .num_pinned_blocks = 2}),
            "waits for 1 more KV block: 4 needed, 3 free; pins hold 2");
  const v1::ExplainWaitResponse response = Encode(reason, {.worker = "host:1", .num_pinned_blocks = 2});
  EXPECT_EQ(response.reason(), v1::WAIT_REASON_BLOCKS);
  EXPECT_EQ(response.worker(), "host:1");
  EXPECT_EQ(response.requests_ahead(), 3u);
  EXPECT_EQ(response.blocks_needed(), 30u);
  EXPECT_EQ(response.blocks_free(), 18u);
  EXPECT_EQ(response.blocks_kept(), 5u);
  EXPECT_EQ(response.blocks_pinned(), 2u);
}

TEST(WaitReportTest, RowsThatAreMissingAreCounted) {
  const WaitReason reason = {.kind = Kind::kRows, .num_ahead = 1, .num_rows = 4, .num_free_rows = 3};
  EXPECT_EQ(Words(reason), "waits for 1 more row of the worker: 4 needed, 3 free; 1 request is ahead");
  EXPECT_EQ(Encode(reason).reason(), v1::WAIT_REASON_ROWS);
  EXPECT_EQ(Encode(reason).rows_needed(), 4u);
  EXPECT_EQ(Encode(reason).rows_free(), 3u);
}

TEST(WaitReportTest, EveryReasonHasAWordAndASentence) {
  EXPECT_EQ(Words({.kind = Kind::kRuns}), "runs");
  EXPECT_EQ(Words({.kind = Kind::kNextPlan}), "enters with the next plan");
  EXPECT_EQ(Words({.kind = Kind::kBehindOthers, .num_ahead = 2}), "waits for its turn; 2 requests are ahead");
  EXPECT_EQ(Words({.kind = Kind::kResults, .is_swapped = true}),
            "was preempted and waits for results that are on their way; its blocks are in the host tier");
  EXPECT_EQ(Words({.kind = Kind::kPrefix, .num_cached_tokens = 16}),
            "waits for a running request to compute the beginning of its prompt, which they share; 16 tokens of its "
            "prompt are cached");
  const WaitReason share = {
      .kind = Kind::kTenantShare, .num_counted_blocks = 3, .num_tenant_blocks = 7, .max_tenant_blocks = 8};
  EXPECT_EQ(Words(share),
            "waits until other requests of its tenant have ended: it needs 3 KV blocks, they hold 7, and the "
            "tenant may hold 8 (max_blocks_share)");
  EXPECT_EQ(Encode(share).reason(), v1::WAIT_REASON_BLOCKS);
  EXPECT_EQ(Encode({.kind = Kind::kRuns}).reason(), v1::WAIT_REASON_RUNS);
  EXPECT_EQ(Encode({.kind = Kind::kNextPlan}).reason(), v1::WAIT_REASON_NEXT_PLAN);
  EXPECT_EQ(Encode({.kind = Kind::kBehindOthers}).reason(), v1::WAIT_REASON_BEHIND_OTHERS);
  EXPECT_EQ(Encode({.kind = Kind::kResults}).reason(), v1::WAIT_REASON_RESULTS);
  EXPECT_EQ(Encode({.kind = Kind::kPrefix}).reason(), v1::WAIT_REASON_PREFIX);
  EXPECT_EQ(Encode({.kind = Kind::kBatchIsClosed}).reason(), v1::WAIT_REASON_BATCH_IS_CLOSED);
}

TEST(WaitReportTest, ALostWorkerComesBeforeWhateverElseIsMissing) {
  const WaitReport lost = {.worker = "host:1", .is_worker_lost = true, .last_error = "socket closed"};
  EXPECT_EQ(Words({.kind = Kind::kNextPlan}, lost), "waits for its worker to come back: socket closed");
  EXPECT_EQ(Encode({.kind = Kind::kBlocks}, lost).reason(), v1::WAIT_REASON_WORKER_LOST);
}

TEST(WaitReportTest, ARequestOfNoWorkerIsNotPlaced) {
  EXPECT_EQ(Encode({}, {}).reason(), v1::WAIT_REASON_NOT_PLACED);
  EXPECT_EQ(Words({}, {}), "is with no worker: it is about to be placed, or has just ended");
}

}  // namespace
}  // namespace quire
