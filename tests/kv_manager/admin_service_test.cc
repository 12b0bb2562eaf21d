#include "kv_manager/admin_service.h"

#include <memory>

#include "base/version.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(AdminServiceTest, StatusShowsEveryWorkerAsPublished) {
  WorkerStatus ready;
  ready.address = "host:1";
  ready.is_ready = true;
  ready.epoch = 42;
  ready.steps = 9;
  ready.block_size = 16;
  ready.blocks = {.total = 10, .free = 7, .used = 3, .shared = 1};
  ready.waiting_requests = 2;
  ready.running_requests = 4;
  ready.device = "cpu";
  ready.numerics_fingerprint = "bits";
  ready.stats.preemptions = 5;
  ready.stats.prompt_tokens = 100;
  ready.stats.generated_tokens = 30;
  WorkerStatus away;
  away.address = "host:2";
  away.last_error = "connection refused";
  away.stats.prompt_tokens = 1;
  ManagerStatus status;
  status.uptime_us = 61'900'000;
  status.model_name = "tales";
  status.totals.Add(ready.stats);
  status.totals.Add(away.stats);
  status.workers = {std::make_shared<WorkerStatus>(ready), std::make_shared<WorkerStatus>(away)};

  v1::GetStatusResponse response;
  EncodeStatus(status, &response);
  EXPECT_EQ(response.version(), kVersion);
  EXPECT_EQ(response.uptime_seconds(), 61u);
  EXPECT_EQ(response.model_name(), "tales");
  EXPECT_EQ(response.prompt_tokens(), 101u);
  EXPECT_EQ(response.completion_tokens(), 30u);
  ASSERT_EQ(response.workers_size(), 2);
  const v1::WorkerStatus& first = response.workers(0);
  EXPECT_EQ(first.address(), "host:1");
  EXPECT_EQ(first.state(), v1::WORKER_STATE_READY);
  EXPECT_EQ(first.epoch(), 42u);
  EXPECT_EQ(first.steps(), 9u);
  EXPECT_EQ(first.block_size(), 16u);
  EXPECT_EQ(first.blocks().total(), 10u);
  EXPECT_EQ(first.blocks().free(), 7u);
  EXPECT_EQ(first.blocks().used(), 3u);
  EXPECT_EQ(first.blocks().shared(), 1u);
  EXPECT_EQ(first.waiting_requests(), 2u);
  EXPECT_EQ(first.running_requests(), 4u);
  EXPECT_EQ(first.preemptions(), 5u);
  EXPECT_EQ(first.device(), "cpu");
  EXPECT_EQ(first.numerics_fingerprint(), "bits");
  EXPECT_EQ(response.workers(1).state(), v1::WORKER_STATE_CONNECTING);
  EXPECT_EQ(response.workers(1).last_error(), "connection refused");
}

}  // namespace
}  // namespace quire
