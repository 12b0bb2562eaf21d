// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/table_audit.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "kv_manager/blocks/paged_block_manager.h"
#include "tests/sim/shadow_worker.h"

namespace quire {
namespace {

using Kind = RowDifference::Kind;

// A scheduler over 32 blocks of 4 tokens, and a correct worker whose answers the tests change.
class TableAuditorTest : public ::testing::Test {
 protected:
  TableAuditorTest()
      : blocks_({.num_blocks = 32, .block_size = 4}), scheduler_(Options(), &blocks_), worker_({}, 32, 4, 8) {}

  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.max_sequences = 8;
    options.watermark = 0;
    options.max_plans_in_flight = 2;
    return options;
  }

  // All prompts have the same beginning, so they share a prefix.
  void Submit(uint64_t id, int prompt_length, int num_samples = 1) {
    Request request;
    request.id = RequestId{id};
    request.max_tokens = 30;
    for (int i = 1; i <= prompt_length; ++i) request.prompt.push_back(i);
    request.sampling.seed = id;
    request.num_samples = num_samples;
    ASSERT_TRUE(scheduler_.Submit(request).ok());
  }
  void Ask(bool is_repair_wanted = false, int64_t deadline_us = 1000) {
    audit_.reset();
    auditor_.Ask(deadline_us, is_repair_wanted, [this](const TableAudit& audit) { audit_ = audit; });
  }
  StepPlan Plan() {
    StepPlan plan = scheduler_.Plan();
    auditor_.OnPlanned(scheduler_, blocks_, &plan);
    return plan;
  }
  StepResult Execute(const StepPlan& plan) {
    absl::StatusOr<StepResult> result = worker_.Execute(plan);
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  }
  void Commit(StepResult result) {
    EXPECT_TRUE(auditor_.OnResult(result, &scheduler_).ok());
    scheduler_.Commit(std::move(result));
  }
  void Step() { Commit(Execute(Plan())); }

  PagedBlockManager blocks_;
  Scheduler scheduler_;
  ShadowWorker worker_;
  TableAuditor auditor_;
  std::optional<TableAudit> audit_;
};

TEST_F(TableAuditorTest, EveryStepOfForksAndSharedPrefixesIsRight) {
  Submit(1, 9, 3);
  EXPECT_FALSE(Plan().wants_tables) << "nobody has asked";
  scheduler_.AbandonAll();
  for (int step = 0; step < 25; ++step) {
    if (step == 3) Submit(2, 17);
    if (step == 5) Submit(3, 9, 2);
    Ask();
    Step();
    ASSERT_TRUE(audit_.has_value());
    EXPECT_TRUE(audit_->not_compared.ok());
    EXPECT_GE(audit_->num_rows, step == 0 ? 3 : 1);
    EXPECT_EQ(audit_->num_differences, 0) << "step " << step;
  }
}

TEST_F(TableAuditorTest, WhatDiffersIsNamed) {
  Submit(1, 9);
  Submit(2, 6);
  Step();
  const auto found_after = [this](auto change) {
    Ask();
    StepResult result = Execute(Plan());
    change(&result.tables);
    Commit(std::move(result));
    EXPECT_EQ(audit_->num_rows, 2);
    EXPECT_EQ(audit_->num_differences, 1);
    EXPECT_FALSE(audit_->is_repaired);
    return audit_->differences.at(0);
  };
  uint64_t was;
  RowDifference found = found_after([&](std::vector<RowTable>* tables) {
    was = Value((*tables)[0].blocks[1]);
    (*tables)[0].blocks[1] = BlockId{31};
  });
  EXPECT_EQ(found, (RowDifference{Kind::kBlock, found.row, RequestId{1}, 1, was, 31}));
  found = found_after([&](std::vector<RowTable>* tables) { (*tables)[1].sequence = SequenceId{77}; });
  EXPECT_EQ(found.kind, Kind::kSequence);
  EXPECT_EQ(found.request, RequestId{2});
  EXPECT_EQ(found.found, 77u);
  found = found_after([&](std::vector<RowTable>* tables) { --(*tables)[0].num_computed; });
  EXPECT_EQ(found.kind, Kind::kComputedTokens);
  EXPECT_EQ(found.found + 1, found.expected);
  found = found_after([&](std::vector<RowTable>* tables) { (*tables)[0].blocks.push_back(BlockId{5}); });
  EXPECT_EQ(found.kind, Kind::kTableLength);
}

TEST_F(TableAuditorTest, ARepairSendsTheWholeTableOfThatRowAgain) {
  Submit(1, 9);
  Submit(2, 6);
  Step();
  Ask(/*is_repair_wanted=*/true);
  StepResult result = Execute(Plan());
  const size_t num_blocks = result.tables[0].blocks.size();
  result.tables[0].blocks[0] = BlockId{31};
  Commit(std::move(result));
  EXPECT_EQ(audit_->num_differences, 1);
  EXPECT_TRUE(audit_->is_repaired);
  const StepPlan plan = Plan();
  ASSERT_EQ(plan.slices.size(), 2u);
  EXPECT_EQ(plan.slices[0].first_changed_block, 0);
  EXPECT_GE(plan.slices[0].block_tail.size(), num_blocks);
  EXPECT_GT(plan.slices[1].first_changed_block, 0);
  Commit(Execute(plan));
}

TEST_F(TableAuditorTest, WhatNoTableMendsEndsTheSession) {
  Submit(1, 9);
  Step();
  Ask(/*is_repair_wanted=*/true);
  StepResult result = Execute(Plan());
  result.tables[0].sequence = SequenceId{77};
  const absl::Status status = auditor_.OnResult(result, &scheduler_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "an audit found that row 0 holds what it should not; the session restarts");
  EXPECT_TRUE(audit_->is_repaired);
}

TEST_F(TableAuditorTest, SoManyMayWaitAndNoMore) {
  for (size_t i = 0; i < TableAuditor::kMaxAsked; ++i) Ask();
  EXPECT_FALSE(audit_.has_value());
  Ask();
  ASSERT_TRUE(audit_.has_value());
  EXPECT_EQ(audit_->not_compared.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(TableAuditorTest, TwoPlansUnderWayAreComparedEachWithItsOwnMoment) {
  Submit(1, 7);
  Ask();
  const StepPlan first = Plan();
  const std::optional<TableAudit> none = audit_;
  std::optional<TableAudit> second_audit;
  auditor_.Ask(1000, false, [&](const TableAudit& audit) { second_audit = audit; });
  const StepPlan second = Plan();
  EXPECT_TRUE(first.wants_tables);
  EXPECT_TRUE(second.wants_tables);
  EXPECT_FALSE(none.has_value());
  Commit(Execute(first));
  ASSERT_TRUE(audit_.has_value());
  EXPECT_EQ(audit_->num_differences, 0);
  EXPECT_FALSE(second_audit.has_value());
  Commit(Execute(second));
  EXPECT_EQ(second_audit->num_differences, 0);
}

TEST_F(TableAuditorTest, WithoutAStepItIsSaidWhy) {
  Ask();
  auditor_.OnRound(0, /*num_running=*/0);
  ASSERT_TRUE(audit_.has_value()) << "nothing runs";
  EXPECT_TRUE(audit_->not_compared.ok());
  Ask(false, 500);
  EXPECT_EQ(auditor_.next_deadline_us(), 500);
  auditor_.OnRound(499, 1);
  EXPECT_FALSE(audit_.has_value());
  auditor_.OnRound(500, 1);
  EXPECT_EQ(audit_->not_compared.message(), "the worker began no step in time");
  Submit(1, 7);
  Ask();
  Plan();
  auditor_.OnLost(absl::UnavailableError("socket closed"));
  EXPECT_EQ(audit_->not_compared.message(), "socket closed");
}

}  // namespace
}  // namespace quire
