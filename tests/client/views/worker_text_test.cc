// SPDX-License-Identifier: Apache-2.0

#include "client/views/worker_text.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(WorkerTextTest, AWorkerThatDrainsIsNotReady) {
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

TEST(WorkerTextTest, TheColumnOfAddressesHoldsTheLongest) {
  v1::GetStatusResponse status;
  EXPECT_EQ(AddressWidth(status), 28);
  status.add_workers()->set_address("host:1");
  EXPECT_EQ(AddressWidth(status), 28);
  status.add_workers()->set_address(std::string(61, 'a'));
  EXPECT_EQ(AddressWidth(status), 61);
}

}  // namespace
}  // namespace quire
