// SPDX-License-Identifier: Apache-2.0

// Executors of the ranks of one model.

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status_reason.h"
#include "gtest/gtest.h"
#include "kernels/local_group.h"
#include "tests/worker/plan_builder.h"
#include "tests/worker/test_worker.h"

namespace quire {
namespace {

v1::RowSampling Draw(uint64_t seed) {
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(0.9f);
  sampling.set_top_k(40);
  sampling.set_repetition_penalty(1.2f);
  sampling.set_seed(seed);
  sampling.set_num_logprobs_plus_one(4);
  return sampling;
}

v1::RowSampling Beams() {
  v1::RowSampling sampling = Greedy();
  sampling.set_num_candidates(6);
  return sampling;
}

v1::RowSampling WithPromptLogprobs() {
  v1::RowSampling sampling = Draw(3);
  sampling.set_num_prompt_logprobs_plus_one(3);
  return sampling;
}

// Three sequences, of which one lists candidates and one asks for the logprobs of its prompt.
std::vector<v1::StepPlan> Session() {
  std::vector<v1::StepPlan> plans;
  plans.push_back(PlanBuilder(1)
                      .Start(0, Tokens(1, 9), Draw(7))
                      .Start(1, Tokens(20, 5), Beams())
                      .Start(2, Tokens(40, 7), WithPromptLogprobs())
                      .Slice(0, 0, 9, true, Blocks(0, 3))
                      .Slice(1, 0, 5, true, Blocks(3, 2))
                      .Slice(2, 0, 7, true, Blocks(5, 2))
                      .plan());
  for (uint32_t step = 2; step <= 3; ++step) {
    PlanBuilder plan(step);
    plan.Append(1, static_cast<TokenId>(50 + step));
    plan.Slice(0, 7 + step, 1, true);
    plan.Slice(1, 3 + step, 1, true);
    if (step == 2) plan.Slice(2, 5 + step, 1, true);
    plans.push_back(plan.plan());
  }
  return plans;
}

// Runs the plans from the first on until one fails. Returns what the steps have given, without their times.
std::vector<std::string> RunPlans(TestWorker* worker, const std::vector<v1::StepPlan>& plans, absl::Status* status) {
  std::vector<std::string> results;
  worker->executor().Reset();
  for (const v1::StepPlan& plan : plans) {
    absl::StatusOr<v1::StepResult> result = worker->Run(plan);
    *status = result.status();
    if (!result.ok()) break;
    result->clear_duration_us();
    results.push_back(result->SerializeAsString());
  }
  return results;
}

class WorkerRanksTest : public testing::TestWithParam<int> {
 protected:
  WorkerRanksTest() {
    TestWorkerOptions options;
    options.num_ranks = GetParam();
    for (options.rank = 0; options.rank < GetParam(); ++options.rank) {
      ranks_.push_back(std::make_unique<TestWorker>(options));
    }
    TestWorker alone;
    absl::Status status;
    expected_ = RunPlans(&alone, Session(), &status);
    EXPECT_TRUE(status.ok()) << status;
  }

  // Runs body(rank) in a thread of each rank.
  template <typename Body>
  void ForRanks(const Body& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < GetParam(); ++rank) threads.emplace_back([&body, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  void ExpectResultsOfOneRank() {
    LocalGroup group(GetParam());
    ForRanks([&](int rank) {
      absl::Status status;
      EXPECT_TRUE(ranks_[rank]->executor().SetGroup(group.collective(rank)).ok());
      EXPECT_EQ(RunPlans(ranks_[rank].get(), Session(), &status), expected_) << "rank " << rank;
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(ranks_[rank]->executor().SetGroup(nullptr).ok());
    });
  }

  std::vector<std::unique_ptr<TestWorker>> ranks_;
  std::vector<std::string> expected_;
};

INSTANTIATE_TEST_SUITE_P(, WorkerRanksTest, testing::Values(2, 4),
                         [](const auto& info) { return std::to_string(info.param) + "Ranks"; });

TEST_P(WorkerRanksTest, EveryRankHasTheResultsOfOne) {
  ExpectResultsOfOneRank();
}

TEST_P(WorkerRanksTest, RankRunsItsFirstStepsWithoutPeers) {
  absl::Status status;
  EXPECT_EQ(RunPlans(ranks_[1].get(), Session(), &status).size(), Session().size());
  EXPECT_TRUE(status.ok()) << status;
  ExpectResultsOfOneRank();
}

TEST_P(WorkerRanksTest, LostPeerEndsTheStepAndNotTheProcess) {
  const int lost = GetParam() - 1;
  LocalGroup group(GetParam());
  std::vector<absl::Status> statuses(GetParam());
  std::vector<size_t> num_results(GetParam());
  ForRanks([&](int rank) {
    EXPECT_TRUE(ranks_[rank]->executor().SetGroup(group.collective(rank)).ok());
    std::vector<v1::StepPlan> plans = Session();
    if (rank == lost) plans.resize(1);
    num_results[rank] = RunPlans(ranks_[rank].get(), plans, &statuses[rank]).size();
    if (rank != lost) return;
    // The others are in their second step, or begin it.
    for (int r = 0; r < lost; ++r) group.collective(r)->Abort(BackendStatus::Error("rank " + std::to_string(lost)));
  });
  for (int rank = 0; rank < lost; ++rank) {
    EXPECT_LE(num_results[rank], 1u);
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kUnavailable) << statuses[rank];
    ASSERT_TRUE(ReasonOf(statuses[rank]).has_value());
    EXPECT_EQ(ReasonOf(statuses[rank])->word, "GROUP_PEER_LOST");
    // A plan that comes too late changes nothing.
    EXPECT_EQ(ranks_[rank]->Run(Session()[1]).status().code(), absl::StatusCode::kUnavailable);
  }
  ExpectResultsOfOneRank();
}

}  // namespace
}  // namespace quire
