// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/leadership/fenced_worker_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Writes its calls down.
class RecordedClient : public WorkerClient {
 public:
  explicit RecordedClient(std::vector<std::string>* calls) : calls_(calls) {}

  void SetListener(Listener* /*listener*/) override { calls_->push_back("listener"); }
  void Describe(uint64_t /*epoch*/) override { calls_->push_back("describe"); }
  void Open(uint64_t /*epoch*/, bool adopts) override { calls_->push_back(adopts ? "open and adopt" : "open"); }
  void Refuse(const std::string& /*reason*/) override { calls_->push_back("refuse"); }
  void Send(const StepPlan& /*plan*/) override { calls_->push_back("send"); }
  void Probe(uint64_t /*epoch*/) override { calls_->push_back("probe"); }
  void Close() override { calls_->push_back("close"); }

 private:
  std::vector<std::string>* const calls_;
};

TEST(FencedWorkerClientTest, NothingThatChangesAWorkerIsSentByAManagerThatDoesNotLead) {
  std::vector<std::string> calls;
  bool may_lead = true;
  FencedWorkerClient client(std::make_unique<RecordedClient>(&calls), [&] { return may_lead; });
  client.SetListener(nullptr);
  client.Describe(1);
  client.Open(1, /*adopts=*/false);
  client.Open(2, /*adopts=*/true);
  client.Send(StepPlan());
  client.Refuse("");
  client.Probe(2);
  client.Close();
  EXPECT_THAT(calls, ElementsAre("listener", "describe", "open", "open and adopt", "send", "refuse", "probe", "close"));
  calls.clear();
  may_lead = false;
  client.Open(3, /*adopts=*/true);
  client.Send(StepPlan());
  client.Refuse("");
  EXPECT_THAT(calls, IsEmpty());
}

}  // namespace
}  // namespace quire
