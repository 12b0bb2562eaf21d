// SPDX-License-Identifier: Apache-2.0

// Runs some thousand scenarios of quire-sim, and scenarios that have failed before.

#include <cstdint>

#include <gtest/gtest.h>

#include "tests/sim/cluster_sim.h"
#include "tests/sim/scenario.h"
#include "tests/sim/scenario_draw.h"
#include "tests/sim/search.h"
#include "tests/sim/shrink.h"
#include "tests/sim/stream_sim.h"

namespace quire {
namespace {

// 5,000 seeds in quarters, for test runners to share.
constexpr uint64_t kSeedsPerQuarter = 1250;
// Sanitizer builds run only the first seeds of each quarter, because they are slow, and look for other faults.
constexpr uint64_t kNumSeeds = QUIRE_NUM_SEEDS;

class SchedulerPropertyTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  uint64_t first_seed() const { return GetParam() * kSeedsPerQuarter + 1; }
  uint64_t last_seed() const { return first_seed() + kNumSeeds - 1; }
};
INSTANTIATE_TEST_SUITE_P(Quarters, SchedulerPropertyTest, ::testing::Range<uint64_t>(0, 4));

TEST_P(SchedulerPropertyTest, EveryRequestGetsTheTokensOfASoloRunWhateverHappens) {
  SimReport report;
  for (uint64_t seed = first_seed(); seed <= last_seed(); ++seed) {
    ASSERT_EQ(RunScenario(DrawScenario(seed), /*is_run_twice=*/seed % 16 == 0, &report), absl::OkStatus())
        << "quire-sim --seed " << seed;
    ASSERT_EQ(RunStreamScenario(seed), absl::OkStatus()) << "quire-sim --seed " << seed;
  }
  if (kNumSeeds < kSeedsPerQuarter) return;
  // Checks that the seeds reach the hard cases; otherwise they would prove little.
  EXPECT_GT(report.preemptions, 250);
  EXPECT_GT(report.swap_outs, 250);
  EXPECT_GT(report.forks, 5000);
  EXPECT_GT(report.cached_tokens, 5000);
  EXPECT_GT(report.evictions, 5000);
  EXPECT_GT(report.pins, 250);
  EXPECT_GT(report.failed_pins, 100);
  EXPECT_GT(report.losses, 250);
  EXPECT_GT(report.expired, 250);
  EXPECT_GT(report.probed_blocks, 12500);
  EXPECT_GT(report.drains, 100);
  EXPECT_GT(report.pool_changes, 25);
  EXPECT_GT(report.failed, 100);
  EXPECT_GT(report.moved, 100);
  EXPECT_GT(report.renumbered, 50);
  EXPECT_GT(report.failed_for_numerics, 5);
  EXPECT_GT(report.restored_renumbered, 5);
  EXPECT_GT(report.convicted, 25);
  EXPECT_GT(report.convicted_in_part, 10);
  EXPECT_GT(report.reported, 25);
  EXPECT_GT(report.audits, 250);
}

// Preempted tokens are computed again. If their number were not limited, requests would preempt each other in turn.
TEST_P(SchedulerPropertyTest, FewTokensAreComputedTwiceEvenWhereRequestsWait) {
  SimReport report;
  for (uint64_t seed = first_seed(); seed <= last_seed(); ++seed) {
    Scenario scenario = DrawScenario(seed);
    std::erase_if(scenario.events, [](const SimEvent& event) {
      return event.kind == SimEventKind::kLose || event.kind == SimEventKind::kLoseForEver ||
             event.kind == SimEventKind::kLateResult || event.kind == SimEventKind::kDrain ||
             event.kind == SimEventKind::kSilence || event.kind == SimEventKind::kAudit ||
             event.kind == SimEventKind::kManagerLost;
    });
    for (SimEvent& event : scenario.events) {
      if (event.kind == SimEventKind::kSetDraining) event.argument = event.argument != 0;  // Without moves.
    }
    for (auto& [id, request] : scenario.requests) request.poison = 0;
    ASSERT_EQ(RunScenario(scenario, /*is_run_twice=*/false, &report), absl::OkStatus()) << "seed " << seed;
  }
  if (kNumSeeds == kSeedsPerQuarter) {
    EXPECT_GT(report.crowded_scheduled_tokens, 25000);
  }
  EXPECT_LT(report.crowded_recomputed_tokens, report.crowded_scheduled_tokens / 4);
}

class RecordedScenarioTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RecordedScenarioTest, Succeeds) {
  const auto scenario = ParseScenario(GetParam());
  ASSERT_EQ(scenario.status(), absl::OkStatus());
  SimReport report;
  EXPECT_EQ(RunScenario(*scenario, /*is_run_twice=*/true, &report), absl::OkStatus());
}

// Each scenario is written as quire-sim printed it when it failed.
INSTANTIATE_TEST_SUITE_P(
    Recorded, RecordedScenarioTest,
    ::testing::Values(
        // Copies for a preempted request kept its blocks from the request that continued.
        "model\nworker blocks=6\nsubmit 47 num_shared=1 max_tokens=2 samples=4\n"
        "submit 50 num_own=5 max_tokens=2 beams=2\n",
        // A block was evicted while a copy of the block after it was in flight.
        "model\nworker blocks=8 step_tokens=7 plans_in_flight=2\n"
        "submit 74 num_shared=8 num_own=2 max_tokens=4 beams=2\n"
        "submit 75 num_shared=4 num_own=2 max_tokens=3 salt=1 beams=2\n",
        // Host blocks were freed in the order of a hash table.
        "model\nworker blocks=13 host_blocks=2 rows=14\n"
        "submit 6 num_shared=11 num_own=8 max_tokens=5\n"
        "submit 7 num_shared=5 num_own=2 repeats=1 max_tokens=7 bypass_cache=1 beams=3\n"
        "submit 13 num_shared=1 max_tokens=5 beams=2\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "submit 16 num_shared=3 max_tokens=3\nlose 0\n",
        // One of three samples took cached blocks and the others kept theirs, so together they no longer fitted.
        "model\n"
        "worker blocks=19 host_blocks=9 policy=1 step_tokens=5\n"
        "submit 8 num_shared=9 max_tokens=7\n"
        "plan 0\n"
        "commit 0\n"
        "submit 9 follows=8 num_own=10 max_tokens=4 beams=6\n"
        "submit 10 num_shared=12 max_tokens=6 samples=3\n"
        "plan 0\n"
        "commit 0\n"
        "plan 0\n"
        "commit 0\n"
        "plan 0\n"
        "commit 0\n"
        "plan 0\n"
        "commit 0\n"
        "plan 0\n"
        "commit 0\n"
        "plan 0\n"
        "submit 11 num_shared=11 num_own=7 max_tokens=5 priority=-1 salt=1 beams=3\n",
        // Losses before a session that gave tokens and drained still counted as consecutive losses.
        "model\nworker\nsubmit 1 num_own=1 max_tokens=3 beams=4\nplan 0\ncommit 0\nplan 0\nlate_result 0\n"
        "plan 0\nplan 0\nplan 0\nplan 0\ncommit 0\nplan 0\nlate_result 0\nplan 0\ndrain 0\nplan 0\nplan 0\n"
        "plan 0\ncommit 0\nplan 0\nplan 0\nsubmit 5 num_own=1 max_tokens=2 beams=2\nplan 0\nreturn 0\n"
        "plan 0\nplan 0\nplan 0\ncommit 0\nplan 0\nlate_result 0\n",
        // A search that was taken over from a worker counted as one row, not as one for each beam.
        "model\nworker keeps_rows=1\nsubmit 323 num_own=1 resumable=1 beams=2\nplan 0\ncommit 0\nmanager_lost 0\n",
        // A sequence got the id of one that had ended and still had a row. The third manager could not tell them apart.
        "model\nworker\nworker keeps_rows=1\nsubmit 1 num_own=1\nsubmit 2 follows=1\nplan 1\ncommit 1\nplan 1\n"
        "submit 9 num_own=1 resumable=1\nplan 1\nmanager_lost 1\nplan 1\nplan 1\nsubmit 13 num_own=1\n"
        "submit 14 num_own=1 resumable=1\nplan 1\nmanager_lost 1\n",
        // Samples that a new manager found without their blocks each took blocks of their own for the prompt, and
        // together they needed more than the pool.
        "model\nworker block_size=2 prefix_cache=0 plans_in_flight=2 keeps_rows=1\nsubmit 22 num_shared=1 "
        "max_tokens=2\nplan 0\nsubmit 25 num_shared=5 num_own=1 max_tokens=2\nsubmit 26 num_own=5 max_tokens=2 "
        "beams=2\nsubmit 30 num_shared=6 max_tokens=4 resumable=1 samples=4\nsubmit 33 num_shared=3 num_own=4 "
        "max_tokens=2\ncommit 0\nplan 0\ncommit 0\ncommit 0\nplan 0\ncommit 0\ncommit 0\nmanager_lost 0\n",
        // The block that a restored request was about to write was also in the restored cache, under tokens of an
        // earlier request. The request needed all blocks of the pool, so there was none for a copy.
        "model\nworker blocks=4 block_size=22 step_tokens=11 keeps_rows=1\nsubmit 288 num_shared=23\nplan 0\n"
        "commit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nsubmit 312 num_shared=55 max_tokens=20\nplan 0\ncommit 0\n"
        "plan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "plan 0\ncommit 0\nsubmit 328 num_shared=64 num_own=3 max_tokens=5\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "plan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "submit 334 num_shared=63 num_own=4 resumable=1\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "plan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "plan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "manager_lost 0\n",
        // A cancelled sequence left a block in the cache that its slice in flight had yet to compute, and that failed.
        "model\nworker block_size=3\nsubmit 25 num_own=2 max_tokens=2 poison=3 named=2\nplan 0\ncommit 0\nplan 0\n"
        "cancel_sample 25 0\n",
        // A request moved back to a worker that it had left for other numerics, and the manager was lost before it ran
        // there. The worker still had the rows from before.
        "model\nworker timeout=1 keeps_rows=1 approximate=1\nworker keeps_rows=1 numerics=1 approximate=1\n"
        "submit 24 num_own=1 max_tokens=2 resumable=1 beams=1\nplan 0\ncommit 0\nsilence 0 1\nplan 0\n"
        "plan 0\nplan 0\nplan 0\nplan 1\ncommit 1\nmanager_lost 0\nsilence 0\nplan 0\nplan 1\nplan 0\n"
        "plan 1\nlose 1\nplan 0\nplan 1\nmanager_lost 0\n",
        // Of a search whose beam had failed, the next manager found the other beam, but not the newest record.
        "model\nworker keeps_rows=1\nsubmit 90 num_own=1\nsubmit 92 num_own=1\nsubmit 95 num_own=1\n"
        "submit 96 num_own=6 max_tokens=4 resumable=1 beams=2 poison=9 named=2 poison_sample=1\n"
        "submit 97 num_own=1 poison=1\nplan 0\ncommit 0\nplan 0\nplan 0\nplan 0\nplan 0\ncommit 0\nplan 0\n"
        "plan 0\nplan 0\nplan 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\nplan 0\nplan 0\nplan 0\nplan 0\n"
        "commit 0\nplan 0\nplan 0\nplan 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\n"
        "commit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nmanager_lost 0\n",
        // A request that exceeds the context was passed on by a worker that was lost, and the next one refused it.
        "model\nworker block_size=9 context=142 timeout=13\nworker\nworker block_size=9 timeout=1\n"
        "submit 178 num_shared=1\nsubmit 179 num_own=65\nsilence 2 1\nplan 0\nplan 2\nplan 2\nplan 2\naudit 1\n"
        "commit 1\nplan 2\nplan 1\ncommit 1\nplan 0\nplan 1\ncommit 1\nplan 0\ncommit 2\nplan 2\nplan 1\nplan 0\n"
        "commit 1\nprobe 26\ncommit 2\nplan 0\nplan 0\nsubmit 185 num_shared=57 max_tokens=86\n",
        // A request got other numerics before its first token, and the next manager did not tell it.
        "model\nworker approximate=1\nworker keeps_rows=1 numerics=1\nsubmit 32 num_own=1 resumable=1\nlose 0\n"
        "plan 0\nplan 1\nmanager_lost 1\n",
        // A search whose first tokens had other numerics began again, because the row of a beam was missing.
        "model\nworker numerics=1 approximate=1\nworker keeps_rows=1\ndamage 1 1\n"
        "submit 2 num_shared=1 max_tokens=2 resumable=1 beams=2\nplan 0\ncommit 0\nlose 0\nplan 0\nplan 1\n"
        "manager_lost 2\n",
        // A search with fewer tokens than hypotheses to return, which comes to a worker with other numerics.
        "model vocab=3\nworker\nworker chunk_tokens=6 numerics=1 approximate=1\n"
        "submit 11 num_own=7 beams=4 returned=4\nplan 1\ncommit 1\nlate_result 1\n",
        // A plan that only ended rows was sent when a suspect came, while requests of earlier plans were in flight.
        "model\nworker grace=1\nworker\nworker queue=7 plans_in_flight=2 keeps_rows=1\nsubmit 17 num_own=1\n"
        "submit 18 follows=17 num_own=2\nsubmit 19 num_own=1\nsubmit 20 num_own=1 max_tokens=2\n"
        "submit 21 num_own=1 poison=1\nsubmit 22 num_own=1 poison=1 named=1\nplan 0\ncommit 0\nplan 0\n"
        "manager_lost 2\nplan 0\nplan 0\nplan 0\nplan 1\nsubmit 59 num_own=1\nsubmit 60 num_own=1\nplan 1\n"
        "plan 1\nplan 2\nplan 2\nplan 2\nplan 0\ncommit 0\nplan 1\nplan 2\nplan 0\ncommit 2\n"
        "submit 96 num_own=1 resumable=1\nplan 2\ncommit 1\nplan 0\nplan 1\nsubmit 99 num_own=1 tenant=1\n",
        // Some samples have drawn their first and last tokens, and the draws of others are postponed, when the worker
        // is lost.
        "model\nworker postpones=2\nsubmit 1 num_own=1 poison=1\nsubmit 2 num_own=1 samples=6\n",
        // Some samples had drawn nothing when their request got other numerics, and then their manager was lost. The
        // rows of those that had drawn a token were taken by another request.
        "model\nworker rows=11 keeps_rows=1\nworker numerics=1 approximate=1 postpones=2\n"
        "submit 9 num_shared=1 max_tokens=2 resumable=1 samples=7\nplan 1\ncommit 1\nsubmit 10 num_shared=1\n"
        "late_result 1\nsubmit 12 num_shared=1 samples=4\nplan 1\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "manager_lost 0\n",
        // Some samples had drawn nothing, and the prompt fills a block, when the worker was lost.
        "model\nworker blocks=17 block_size=2 host_blocks=5 plans_in_flight=2 postpones=2\n"
        "submit 3 num_own=1 max_tokens=2 samples=3\nplan 0\n"
        "submit 4 num_own=2 max_tokens=2 bypass_cache=1 samples=12\ncommit 0\nsubmit 9 num_own=5 max_tokens=2 "
        "poison=6\n",
        // The start of a preempted search was lost with the manager. The worker still had an old row of it, in which
        // the same beam had run before.
        "model vocab=3\nworker block_size=12 others_percent=81 keeps_rows=1\n"
        "submit 1 num_shared=57 max_tokens=30 tenant=2\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "plan 0\ncommit 0\nsubmit 2 num_shared=59 num_own=2 max_tokens=13 tenant=2 beams=2\nplan 0\ncommit 0\n"
        "plan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "plan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "plan 0\ncommit 0\nsubmit 6 num_own=1 max_tokens=13\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "submit 7 num_own=9 max_tokens=5 tenant=2 resumable=1 beams=4\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\n"
        "commit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\n"
        "commit 0\nplan 0\nsubmit 10 stream=2 num_shared=50 max_tokens=8\ncommit 0\nplan 0\ncommit 0\n"
        "submit 11 num_shared=51 max_tokens=5 prompt_logprobs=1\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\n"
        "commit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "submit 14 num_own=1 max_tokens=5\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\nplan 0\ncommit 0\n"
        "plan 0\nmanager_lost 0\n"));

TEST(ScenarioTest, WhatIsPrintedReadsBackAsTheSame) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const std::string text = PrintScenario(DrawScenario(seed));
    const auto read = ParseScenario(text);
    ASSERT_EQ(read.status(), absl::OkStatus());
    EXPECT_EQ(PrintScenario(*read), text);
  }
}

TEST(ScenarioTest, WhatCannotBeReadNamesItsLine) {
  EXPECT_EQ(ParseScenario("model\nworker\nplan nowhere\n").status().message(),
            "line 3, 'plan nowhere': a number is missing");
  EXPECT_EQ(ParseScenario("model\nworker size=3\n").status().message(),
            "line 2, 'worker size=3': 'size=3' is no parameter");
  EXPECT_EQ(ParseScenario("model\nworker\nplan 1\n").status().message(), "worker 1 of 1");
}

TEST(ShrinkTest, OnlyWhatAFailureNeedsIsLeft) {
  // Fails while request 3 has at least 7 tokens of its own and is cancelled after a plan.
  const auto fails = [](const Scenario& scenario) {
    bool is_planned = false;
    bool is_submitted = false;
    for (const SimEvent& event : scenario.events) {
      if (event == SimEvent{SimEventKind::kSubmit, 3}) is_submitted = scenario.requests.at(3).num_own >= 7;
      if (event.kind == SimEventKind::kPlan) is_planned = is_submitted;
      if (event == SimEvent{SimEventKind::kCancel, 3} && is_planned) return true;
    }
    return false;
  };
  Scenario scenario = DrawScenario(5);
  scenario.requests[3] = {.id = 3, .num_own = 40, .max_tokens = 9, .samples = 4};
  scenario.events.push_back({SimEventKind::kSubmit, 3});
  scenario.events.push_back({SimEventKind::kPlan, 0});
  scenario.events.push_back({SimEventKind::kCancel, 3});
  EXPECT_EQ(PrintScenario(Shrink(scenario, fails, 4000)), "model\nworker\nsubmit 3 num_own=7\nplan 0\ncancel 3\n");
}

}  // namespace
}  // namespace quire
