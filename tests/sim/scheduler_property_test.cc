#include <cstdint>

#include <gtest/gtest.h>

#include "tests/sim/scheduler_sim.h"

namespace quire {
namespace {

constexpr uint64_t kNumSeeds = 5000;

TEST(SchedulerPropertyTest, EveryRequestGetsTheTokensOfASoloRunWhateverHappens) {
  int64_t preemptions = 0;
  int64_t losses = 0;
  int64_t expired = 0;
  for (uint64_t seed = 1; seed <= kNumSeeds; ++seed) {
    SchedulerSim sim(seed);
    ASSERT_EQ(sim.Run(), absl::OkStatus()) << "seed " << seed;
    preemptions += sim.counts().preemptions;
    losses += sim.num_losses();
    expired += sim.num_expired();
  }
  // The seeds are worth running only while they reach the hard cases.
  EXPECT_GT(preemptions, 1000);
  EXPECT_GT(losses, 1000);
  EXPECT_GT(expired, 1000);
}

TEST(SchedulerPropertyTest, EqualCallsGiveEqualPlans) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SchedulerSim first(seed);
    SchedulerSim second(seed);
    ASSERT_EQ(first.Run(), absl::OkStatus()) << "seed " << seed;
    ASSERT_EQ(second.Run(), absl::OkStatus()) << "seed " << seed;
    ASSERT_EQ(first.plans(), second.plans()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quire
