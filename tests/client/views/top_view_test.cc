// SPDX-License-Identifier: Apache-2.0

#include "client/views/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Terminal kPlain;

// A histogram with the bounds 10 ms, 20 ms and 1 s.
v1::LatencyHistogram Histogram(std::initializer_list<uint64_t> counts) {
  v1::LatencyHistogram histogram;
  for (const double bound : {0.01, 0.02, 1.0}) histogram.add_upper_bounds_seconds(bound);
  for (const uint64_t count : counts) histogram.add_counts(count);
  return histogram;
}

v1::GetStatusResponse Status() {
  v1::GetStatusResponse status;
  status.set_version("1.2.3");
  status.set_uptime_seconds(61);
  status.set_model_name("tales");
  status.set_prompt_tokens(1000);
  status.set_cached_prompt_tokens(250);
  status.set_completion_tokens(300);
  *status.mutable_time_to_first_token() = Histogram({0, 10, 0, 0});
  *status.mutable_inter_token_latency() = Histogram({10, 0, 0, 0});
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_address("host:1");
  worker.set_state(v1::WORKER_STATE_READY);
  worker.set_epoch(1);
  worker.set_steps(50);
  worker.set_running_requests(3);
  worker.set_waiting_requests(2);
  v1::BlockCounts& blocks = *worker.mutable_blocks();
  blocks.set_total(76);
  blocks.set_used(38);
  blocks.set_shared(19);
  blocks.set_evictable(19);
  blocks.set_free(19);
  return status;
}

TEST(TopViewTest, AQuantileIsLinearWithinItsBucket) {
  EXPECT_NEAR(*Quantile({}, Histogram({0, 10, 0, 0}), 0.5), 0.015, 1e-9);
  EXPECT_NEAR(*Quantile({}, Histogram({5, 5, 0, 0}), 0.5), 0.01, 1e-9);
  EXPECT_NEAR(*Quantile({}, Histogram({0, 0, 0, 3}), 0.5), 1.0, 1e-9) << "beyond the last bound";
  EXPECT_EQ(Quantile({}, Histogram({0, 0, 0, 0}), 0.5), std::nullopt);
  EXPECT_EQ(Quantile({}, {}, 0.5), std::nullopt);
}

TEST(TopViewTest, OnlyWhatWasObservedBetweenTheLooksCounts) {
  EXPECT_NEAR(*Quantile(Histogram({100, 0, 0, 0}), Histogram({100, 2, 0, 0}), 0.5), 0.015, 1e-9);
  EXPECT_EQ(Quantile(Histogram({1, 0, 0, 0}), Histogram({1, 0, 0, 0}), 0.5), std::nullopt);
}

TEST(TopViewTest, AFirstLookTellsOfTheTimeSinceTheStart) {
  const std::string text = DrawTop({}, Status(), 10, kPlain);
  EXPECT_THAT(text, HasSubstr("quire-manager 1.2.3, up 1m1s, model tales\n"));
  EXPECT_THAT(text,
              HasSubstr("tokens/s  30.0 generated  100.0 prompt, 25% cached    requests  3 running  2 waiting\n"));
  EXPECT_THAT(text, HasSubstr("TTFT p50 15.0 ms  p95 19.5 ms    ITL p50 5.0 ms  p95 9.5 ms\n"));
  EXPECT_THAT(text, HasSubstr("  [" + std::string(19, 's') + std::string(19, 'u') + std::string(19, 'c') +
                              std::string(19, '.') + "]\n"));
  EXPECT_THAT(text, HasSubstr("50% of 76 blocks used: 19 shared, 0 pinned; 19 cached, 19 free\n"));
  EXPECT_THAT(text, HasSubstr("    5.0 steps/s"));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
}

TEST(TopViewTest, AColumnOfAddressesIsAsWideAsTheLongest) {
  v1::GetStatusResponse status = Status();
  const std::string address = "quire-worker-0.quire-worker.inference.svc.cluster.local:50061";
  *status.add_workers() = status.workers(0);
  status.mutable_workers(1)->set_address(address);
  status.mutable_workers(1)->set_is_draining(true);
  const std::string text = DrawTop({}, status, 10, kPlain);
  EXPECT_THAT(text, HasSubstr("host:1" + std::string(address.size() - 6, ' ') + " ready "));
  EXPECT_THAT(text, HasSubstr(address + " draining "));
}

TEST(TopViewTest, ALaterLookTellsOfTheTimeBetween) {
  v1::GetStatusResponse now = Status();
  now.set_completion_tokens(320);
  now.mutable_workers(0)->set_steps(90);
  now.mutable_workers(0)->set_is_draining(true);
  const std::string text = DrawTop(Status(), now, 2, kPlain);
  EXPECT_THAT(text, HasSubstr("tokens/s  10.0 generated  0.0 prompt    requests"));
  EXPECT_THAT(text, HasSubstr("TTFT p50 -  p95 -"));
  EXPECT_THAT(text, HasSubstr("20.0 steps/s"));
  EXPECT_THAT(text, HasSubstr("draining"));
}

TEST(TopViewTest, AManagerThatWasStartedAgainCountsFromZero) {
  v1::GetStatusResponse now = Status();
  now.set_completion_tokens(1);
  EXPECT_THAT(DrawTop(Status(), now, 1, kPlain), HasSubstr("tokens/s  0.0 generated"));
}

TEST(TopViewTest, AWorkerThatIsAwaySaysWhy) {
  v1::GetStatusResponse now;
  v1::WorkerStatus& worker = *now.add_workers();
  worker.set_address("host:2");
  worker.set_state(v1::WORKER_STATE_CONNECTING);
  worker.set_last_error("connection refused");
  EXPECT_THAT(DrawTop({}, now, 1, kPlain), HasSubstr("connecting"));
  EXPECT_THAT(DrawTop({}, now, 1, kPlain), HasSubstr("  connection refused\n"));
  worker.add_ranks()->set_address("host:2");
  EXPECT_THAT(DrawTop({}, now, 1, kPlain), HasSubstr("  connection refused\n  rank 0 at host:2 is connecting\n"));
}

}  // namespace
}  // namespace quire
