// SPDX-License-Identifier: Apache-2.0

#include "client/views/state_text.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(StateTextTest, AWorkerThatDrainsIsNotReady) {
  v1::WorkerStatus worker;
  EXPECT_STREQ(StateOf(worker), "connecting");
  worker.set_is_draining(true);
  EXPECT_STREQ(StateOf(worker), "connecting");
  worker.set_state(v1::WORKER_STATE_REFUSED);
  EXPECT_STREQ(StateOf(worker), "refused");
  worker.set_state(v1::WORKER_STATE_READY);
  EXPECT_STREQ(StateOf(worker), "draining");
  worker.set_is_draining(false);
  EXPECT_STREQ(StateOf(worker), "ready");
}

TEST(StateTextTest, EachRankOfAGroupHasALine) {
  v1::WorkerStatus worker;
  EXPECT_EQ(RankLines(worker), "");
  v1::RankStatus* rank = worker.add_ranks();
  rank->set_address("a:1");
  rank->set_state(v1::WORKER_STATE_READY);
  rank->set_device("cpu");
  rank = worker.add_ranks();
  rank->set_rank(1);
  rank->set_address("b:1");
  rank->set_state(v1::WORKER_STATE_CONNECTING);
  rank->set_last_error("connection refused");
  rank->set_device("cpu");
  EXPECT_EQ(RankLines(worker),
            "  rank 0 at a:1 is ready: cpu\n"
            "  rank 1 at b:1 is connecting: connection refused\n");
  rank->clear_last_error();
  EXPECT_EQ(RankLines(worker),
            "  rank 0 at a:1 is ready: cpu\n"
            "  rank 1 at b:1 is connecting\n");
}

TEST(StateTextTest, TheColumnOfAddressesHoldsTheLongest) {
  v1::GetStatusResponse status;
  EXPECT_EQ(AddressWidth(status), 28);
  status.add_workers()->set_address("host:1");
  EXPECT_EQ(AddressWidth(status), 28);
  status.add_workers()->set_address(std::string(61, 'a'));
  EXPECT_EQ(AddressWidth(status), 61);
}

}  // namespace
}  // namespace quire
