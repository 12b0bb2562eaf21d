// SPDX-License-Identifier: Apache-2.0

// Tests that requests which move from scheduler to scheduler continue as if nothing had happened.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_fixture.h"
#include "tests/sim/shadow_worker.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// A scheduler with a pool and a worker.
struct Host {
  Host(int num_blocks, int block_size, const ShadowModel& model, const SchedulerOptions& options,
       int num_host_blocks = 0)
      : blocks({.num_blocks = num_blocks, .block_size = block_size, .num_host_blocks = num_host_blocks}),
        scheduler(options, &blocks),
        worker(model, num_blocks, block_size, options.max_sequences, num_host_blocks) {}

  PagedBlockManager blocks;
  Scheduler scheduler;
  ShadowWorker worker;
};

class SchedulerMoveTest : public ::testing::Test {
 protected:
  SchedulerMoveTest() {
    options_.max_tokens_per_step = 16;
    options_.max_chunk_tokens = 8;
    options_.max_plans_in_flight = 1;
  }

  static Request MakeRequest(uint64_t id, int prompt_length, int max_tokens) {
    Request request;
    request.id = RequestId{id};
    for (int i = 1; i <= prompt_length; ++i) request.prompt.push_back(i);
    request.max_tokens = max_tokens;
    request.sampling.seed = 1000 * id;
    return request;
  }

  std::unique_ptr<Host> NewHost(int num_blocks, int block_size) const {
    return std::make_unique<Host>(num_blocks, block_size, model_, options_);
  }

  void Submit(const Request& request, Host* host) {
    prompt_length_[request.id] = static_cast<int>(request.prompt.size());
    ASSERT_EQ(host->scheduler.Submit(request), absl::OkStatus());
  }

  void Take(StepOutput output) {
    for (Emission& emission : output.emissions) {
      std::vector<TokenId>& tokens = emitted_[{emission.request, emission.sample_index}];
      EXPECT_EQ(emission.position, prompt_length_[emission.request] + static_cast<int>(tokens.size()));
      tokens.push_back(emission.token.token);
    }
    for (const PromptLogprobs& logprobs : output.prompt_logprobs) num_prompt_logprobs_ += logprobs.tokens.size();
    num_started_ += output.started.size();
    for (const Finished& finished : output.finished) {
      const bool is_new = finished_.insert({{finished.request, finished.sample_index}, finished}).second;
      EXPECT_TRUE(is_new);
    }
  }

  // Makes a step. The result of the last one is lost.
  void Run(Host* host, int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      const StepPlan plan = host->scheduler.Plan();
      if (plan.empty()) return;
      absl::StatusOr<StepResult> result = host->worker.Execute(plan);
      ASSERT_TRUE(result.ok()) << result.status();
      if (i + 1 < num_steps) Take(host->scheduler.Commit(*std::move(result)));
    }
  }

  // Makes at most `num_steps` steps, as long as there is something to do.
  void RunAll(Host* host, int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      const StepPlan plan = host->scheduler.Plan();
      if (plan.empty()) return;
      absl::StatusOr<StepResult> result = host->worker.Execute(plan);
      ASSERT_TRUE(result.ok()) << result.status();
      Take(host->scheduler.Commit(*std::move(result)));
    }
  }

  // Runs the requests and moves them from host to host: after `num_steps` steps, then after one step more, and so on.
  void RunAndMove(const std::vector<Request>& requests, int num_steps) {
    static constexpr std::pair<int, int> kPools[] = {{64, 4}, {40, 8}, {90, 3}, {400, 1}, {30, 16}};
    emitted_.clear();
    finished_.clear();
    num_prompt_logprobs_ = 0;
    num_started_ = 0;
    std::unique_ptr<Host> host = NewHost(64, 4);
    for (const Request& request : requests) Submit(request, host.get());
    for (int i = 1; i < 200 && host->scheduler.counts().waiting + host->scheduler.counts().running > 0; ++i) {
      Run(host.get(), num_steps + i);
      host->scheduler.AbandonAll();
      std::vector<MovedRequest> moved = host->scheduler.TakeAll();
      EXPECT_EQ(host->scheduler.counts().waiting, 0);
      EXPECT_EQ(host->blocks.counts().used, 0);
      const auto [num_blocks, block_size] = kPools[i % std::size(kPools)];
      host = NewHost(num_blocks, block_size);
      for (MovedRequest& request : moved) ASSERT_EQ(host->scheduler.Adopt(std::move(request)), absl::OkStatus());
    }
    EXPECT_EQ(num_started_, requests.size()) << "a request starts once";
    for (const Request& request : requests) CheckSolo(request);
  }

  void CheckSolo(const Request& request) {
    const SoloOutput solo = SoloRun(model_, request);
    for (int i = 0; i < static_cast<int>(solo.samples.size()); ++i) {
      const std::pair key(request.id, i);
      EXPECT_EQ(emitted_[key], solo.samples[i].tokens) << request.id << ", sample " << i;
      const auto finished = finished_.find(key);
      ASSERT_NE(finished, finished_.end());
      EXPECT_EQ(finished->second.reason, solo.samples[i].reason);
      EXPECT_EQ(finished->second.score, solo.samples[i].score);
    }
  }

  ShadowModel model_{.vocab_size = 50, .stop_percent = 5};
  SchedulerOptions options_;
  std::map<std::pair<RequestId, int>, std::vector<TokenId>> emitted_;  // By request and sample.
  std::map<std::pair<RequestId, int>, Finished> finished_;
  std::map<RequestId, int> prompt_length_;
  size_t num_prompt_logprobs_ = 0;
  size_t num_started_ = 0;
};

TEST_F(SchedulerMoveTest, TokensOfSamplesBeamsAndStopTokensAreTheSame) {
  Request stops = MakeRequest(1, 7, 30);
  stops.stop_token_ids = {ShadowModel::kStopToken};
  Request samples = MakeRequest(2, 9, 12);
  samples.num_samples = 4;
  samples.stop_token_ids = {ShadowModel::kStopToken};
  Request beams = MakeRequest(3, 6, 10);
  beams.beam = BeamParams{.width = 4, .num_return = 3};
  beams.stop_token_ids = {ShadowModel::kStopToken};
  Request groups = MakeRequest(4, 5, 8);
  groups.beam = BeamParams{.width = 4, .num_return = 4, .num_groups = 2, .diversity_penalty = 0.5f};
  Request scored = MakeRequest(5, 11, 6);
  scored.sampling.num_prompt_logprobs = 0;
  for (int num_steps = 3; num_steps <= 9; ++num_steps) {
    SCOPED_TRACE(num_steps);
    RunAndMove({stops, samples, beams, groups, scored}, num_steps);
    EXPECT_EQ(num_prompt_logprobs_, 10u) << "prompt logprobs are told once";
  }
}

TEST_F(SchedulerMoveTest, SamplingParametersAndDeadlinesGoAlong) {
  const std::unique_ptr<Host> old_host = NewHost(16, 4);
  Request request = MakeRequest(1, 5, 4);
  request.sampling.temperature = 0.5f;
  request.sampling.repetition_penalty = 1.5f;
  request.sampling.presence_penalty = 0.25f;
  request.sampling.bad_words = {{1, 2}};
  request.sampling.seed = 77;
  request.deadline_us = 5;
  request.tenant = "t";
  Submit(request, old_host.get());
  Run(old_host.get(), 3);
  old_host->scheduler.AbandonAll();
  std::vector<MovedRequest> moved = old_host->scheduler.TakeAll();
  const std::unique_ptr<Host> host = NewHost(16, 8);
  ASSERT_EQ(host->scheduler.Adopt(std::move(moved.at(0))), absl::OkStatus());
  const Request& there = host->scheduler.FindGroup(request.id)->request();
  EXPECT_EQ(there.deadline_us, 5);
  EXPECT_EQ(there.tenant, "t");
  const StepPlan plan = host->scheduler.Plan();
  ASSERT_EQ(plan.starts.size(), 1u);
  EXPECT_EQ(plan.starts[0].sampling, request.sampling);
  EXPECT_EQ(plan.starts[0].prompt_length, 5);
  EXPECT_EQ(plan.starts[0].tokens.size(), 7u) << "the penalties need the tokens that were generated";
}

TEST_F(SchedulerMoveTest, RequestsKeepTheirOrderAndGoBeforeThoseThatAreThere) {
  const std::unique_ptr<Host> old_host = NewHost(64, 4);
  const auto make = [](uint64_t id) {
    Request request = MakeRequest(id, 4, 4);
    request.bypass_prefix_cache = true;  // Otherwise they would wait for each other's prompt.
    return request;
  };
  for (const uint64_t id : {3, 1, 2}) Submit(make(id), old_host.get());
  Run(old_host.get(), 2);
  old_host->scheduler.AbandonAll();
  const std::unique_ptr<Host> host = NewHost(64, 4);
  Submit(make(9), host.get());
  for (MovedRequest& moved : old_host->scheduler.TakeAll()) {
    ASSERT_EQ(host->scheduler.Adopt(std::move(moved)), absl::OkStatus());
  }
  std::vector<uint64_t> seeds;
  for (const SequenceStart& start : host->scheduler.Plan().starts) seeds.push_back(start.sampling.seed);
  EXPECT_THAT(seeds, ::testing::ElementsAre(3000, 1000, 2000, 9000));
}

// Requests leave between two plans, whatever they do: they run, wait, or are swapped to the host.
TEST_F(SchedulerMoveTest, RequestsLeaveASchedulerThatGoesOn) {
  Request samples = MakeRequest(2, 9, 12);
  samples.num_samples = 4;
  Request beams = MakeRequest(3, 6, 10);
  beams.beam = BeamParams{.width = 4, .num_return = 3};
  const std::vector<Request> requests = {MakeRequest(1, 7, 30), samples, beams, MakeRequest(4, 11, 20),
                                         MakeRequest(5, 5, 25)};
  options_.watermark = 0;
  int num_running = 0;
  int num_swapped = 0;
  for (int num_steps = 1; num_steps <= 40; ++num_steps) {
    SCOPED_TRACE(num_steps);
    emitted_.clear();
    finished_.clear();
    Host old_host(18, 4, model_, options_, /*num_host_blocks=*/24);
    Host host(64, 4, model_, options_);
    for (const Request& request : requests) Submit(request, &old_host);
    RunAll(&old_host, num_steps);
    for (const Request& request : requests) {
      const SequenceGroup* const group = old_host.scheduler.FindGroup(request.id);
      if (group == nullptr) continue;  // It has ended.
      num_running += group->is_running();
      num_swapped += group->is_swapped();
      ASSERT_EQ(host.scheduler.Adopt(old_host.scheduler.Take(request.id)), absl::OkStatus());
      EXPECT_EQ(old_host.blocks.CheckIntegrity(), absl::OkStatus());
    }
    for (Host* const each : {&old_host, &host}) {
      RunAll(each, 1000);
      EXPECT_EQ(each->blocks.counts().used + each->blocks.counts().host_used, 0);
    }
    for (const Request& request : requests) CheckSolo(request);
  }
  EXPECT_GT(num_running, 0);
  EXPECT_GT(num_swapped, 0);
}

// The tokens that each row computes in the next plan.
std::vector<int> NextTokens(Host* host) {
  std::vector<int> tokens;
  for (const SequenceSlice& slice : host->scheduler.Plan().slices) tokens.push_back(slice.num_tokens);
  return tokens;
}

TEST_F(SchedulerMoveTest, RecomputationLeavesAPartOfTheStepToOthers) {
  options_.max_tokens_per_step = 100;
  options_.max_chunk_tokens = 1000;
  const auto make = [](uint64_t id) {
    Request request = MakeRequest(id, 300, 10);
    request.bypass_prefix_cache = true;
    return request;
  };
  for (const bool has_newcomer : {true, false}) {
    emitted_.clear();
    finished_.clear();
    const std::unique_ptr<Host> old_host = NewHost(200, 4);
    const std::unique_ptr<Host> host = NewHost(200, 4);
    Submit(make(1), old_host.get());
    RunAll(old_host.get(), 5);
    if (has_newcomer) Submit(make(2), host.get());
    ASSERT_EQ(host->scheduler.Adopt(old_host->scheduler.Take(RequestId{1})), absl::OkStatus());
    const std::vector<int> tokens = NextTokens(host.get());
    if (has_newcomer) {
      EXPECT_THAT(tokens, ::testing::ElementsAre(35, 65)) << "half of the share at first, and nothing is left";
    } else {
      EXPECT_THAT(tokens, ::testing::ElementsAre(100)) << "nobody else needs the rest";
    }
  }
}

// So the next manager knows which of two workers has the later rows of a request.
TEST_F(SchedulerMoveTest, TheRowsOfARequestSayHowOftenItHasMoved) {
  options_.keeps_rows = true;
  std::unique_ptr<Host> host = NewHost(100, 4);
  Request request = MakeRequest(1, 6, 30);
  request.record = std::make_shared<const std::string>("record");
  Submit(request, host.get());
  for (int num_moves = 0; num_moves < 3; ++num_moves) {
    const StepPlan plan = host->scheduler.Plan();
    ASSERT_EQ(plan.starts.size(), 1u);
    EXPECT_EQ(plan.starts[0].num_moves, num_moves);
    absl::StatusOr<StepResult> result = host->worker.Execute(plan);
    ASSERT_TRUE(result.ok()) << result.status();
    Take(host->scheduler.Commit(*std::move(result)));
    std::unique_ptr<Host> other = NewHost(100, 4);
    ASSERT_EQ(other->scheduler.Adopt(host->scheduler.Take(RequestId{1})), absl::OkStatus());
    host = std::move(other);
  }
}

// A request that may be overtaken does not give the share of recomputation to others.
TEST_F(SchedulerMoveTest, ARequestThatWaitsForAPrefixLeavesTheStepToNewcomers) {
  options_.max_tokens_per_step = 100;
  options_.max_chunk_tokens = 70;
  const std::unique_ptr<Host> old_host = NewHost(400, 4);
  const std::unique_ptr<Host> host = NewHost(400, 4);
  for (const uint64_t id : {1, 2}) Submit(MakeRequest(id, 300, 50), old_host.get());
  RunAll(old_host.get(), 12);
  const auto make_newcomer = [](uint64_t id) {
    Request request = MakeRequest(id, 300, 50);
    request.bypass_prefix_cache = true;
    return request;
  };
  ASSERT_EQ(host->scheduler.Adopt(old_host->scheduler.Take(RequestId{1})), absl::OkStatus());
  RunAll(host.get(), 1);
  Submit(make_newcomer(3), host.get());
  RunAll(host.get(), 1);
  ASSERT_EQ(host->scheduler.Adopt(old_host->scheduler.Take(RequestId{2})), absl::OkStatus());
  Submit(make_newcomer(4), host.get());
  EXPECT_THAT(NextTokens(host.get()), ::testing::ElementsAre(70, 16, 14)) << "of requests 1, 3 and 4";
}

// A worker must have room for all beams, although the caller knows only the tokens that they have in common.
TEST_F(SchedulerMoveTest, ARequestNeverTakesMoreBlocksThanItsLimitToGoOn) {
  Request beams = MakeRequest(1, 6, 30);
  beams.beam = BeamParams{.width = 4, .num_return = 3};
  Request samples = MakeRequest(2, 9, 30);
  samples.num_samples = 4;
  int64_t most_of_all = 0;
  for (const Request& request : {beams, samples, MakeRequest(3, 10, 30)}) {
    for (int num_steps = 1; num_steps <= 30; ++num_steps) {
      emitted_.clear();
      finished_.clear();
      const std::unique_ptr<Host> old_host = NewHost(100, 4);
      Submit(request, old_host.get());
      RunAll(old_host.get(), num_steps);
      if (old_host->scheduler.FindGroup(request.id) == nullptr) continue;
      MovedRequest moved = old_host->scheduler.Take(request.id);
      const int64_t limit = moved.group().MaxBlocksToGoOn(CacheGroups(4));
      most_of_all = std::max(most_of_all, limit);
      const std::unique_ptr<Host> host = NewHost(100, 4);
      ASSERT_EQ(host->scheduler.Adopt(std::move(moved)), absl::OkStatus());
      host->scheduler.Plan();
      EXPECT_LE(host->blocks.counts().used, limit) << request.id << " after " << num_steps << " steps";
    }
  }
  EXPECT_GE(most_of_all, 20) << "4 beams or samples of nearly 40 tokens";
}

TEST_F(SchedulerMoveTest, WhatCanNeverFitIsRefusedWithTheNumbers) {
  const std::unique_ptr<Host> old_host = NewHost(64, 4);
  Submit(MakeRequest(1, 20, 40), old_host.get());
  Run(old_host.get(), 2);
  old_host->scheduler.AbandonAll();
  std::vector<MovedRequest> moved = old_host->scheduler.TakeAll();
  const std::unique_ptr<Host> host = NewHost(5, 8);
  const absl::Status status = host->scheduler.Adopt(std::move(moved.at(0)));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("8 KV blocks of 8 tokens, the pool has 5"));
  EXPECT_EQ(host->scheduler.counts().waiting, 0);
}

TEST_F(SchedulerMoveTest, LossesGoAlong) {
  const std::unique_ptr<Host> first = NewHost(64, 4);
  Submit(MakeRequest(1, 4, 4), first.get());
  first->scheduler.Plan();
  EXPECT_TRUE(first->scheduler.AbandonLost(std::nullopt).empty());
  const std::unique_ptr<Host> second = NewHost(64, 4);
  ASSERT_EQ(second->scheduler.Adopt(std::move(first->scheduler.TakeAll().at(0))), absl::OkStatus());
  for (int i = 0; i < 2; ++i) {
    second->scheduler.Plan();
    EXPECT_TRUE(second->scheduler.AbandonLost(std::nullopt).empty());
    EXPECT_EQ(second->scheduler.counts().suspects, 1);
  }
  const std::unique_ptr<Host> third = NewHost(64, 4);
  ASSERT_EQ(third->scheduler.Adopt(std::move(second->scheduler.TakeAll().at(0))), absl::OkStatus());
  EXPECT_EQ(second->scheduler.counts().suspects, 0);
  EXPECT_EQ(third->scheduler.counts().suspects, 1);
  third->scheduler.Plan();
  EXPECT_THAT(third->scheduler.AbandonLost(std::nullopt), ::testing::ElementsAre(Convict{RequestId{1}, 4}));
}

}  // namespace
}  // namespace quire
