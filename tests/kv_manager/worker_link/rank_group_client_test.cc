// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/rank_group_client.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fingerprint.h"
#include "base/listen_address.h"
#include "base/status_reason.h"
#include "base/worker_protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/worker_link/joint_description.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A rank that notes what it is asked. The test answers in its place.
struct FakeRank : WorkerClient {
  explicit FakeRank(std::vector<std::string>* calls) : calls(*calls) {}

  void SetListener(Listener* told) override { listener = told; }
  void Describe(uint64_t epoch) override {
    calls.push_back(absl::StrCat("describe ", epoch));
    if (answer.has_value()) listener->OnDescribed(epoch, *answer);
  }
  void Open(uint64_t epoch, bool adopts) override { calls.push_back(absl::StrCat("open ", epoch, " ", adopts)); }
  void SetGroup(const SessionGroup& joined) override { group = joined; }
  void Refuse(const std::string& reason) override { calls.push_back(absl::StrCat("refuse: ", reason)); }
  void Send(const StepPlan& plan) override { calls.push_back(absl::StrCat("send ", Value(plan.step))); }
  void Probe(uint64_t epoch) override { calls.push_back(absl::StrCat("probe ", epoch)); }
  void Close() override { calls.push_back("close"); }

  std::vector<std::string>& calls;
  Listener* listener = nullptr;
  std::optional<WorkerDescription> answer;  // Told within the call of Describe.
  SessionGroup group;
};

// Notes what the loop is told.
struct FakeLoop : WorkerClient::Listener {
  void OnDescribed(uint64_t epoch, WorkerDescription worker) override {
    told.push_back(absl::StrCat("described ", epoch));
    description = std::move(worker);
  }
  void OnOpened(uint64_t epoch, std::unique_ptr<WorkerInventory> kept) override {
    told.push_back(absl::StrCat("opened ", epoch, " ", kept == nullptr ? 0 : kept->rows.size()));
  }
  void OnResult(uint64_t epoch, StepResult result, int64_t duration_us) override {
    told.push_back(absl::StrCat("result ", epoch, " step ", Value(result.step), " slices ", result.slices.size(), " ",
                                duration_us, " us"));
  }
  void OnDraining(uint64_t epoch) override { told.push_back(absl::StrCat("draining ", epoch)); }
  void OnProbed(uint64_t epoch) override { told.push_back(absl::StrCat("probed ", epoch)); }
  void OnLost(uint64_t epoch, absl::Status reason) override {
    told.push_back(absl::StrCat("lost ", epoch));
    lost = std::move(reason);
  }

  std::vector<std::string> told;
  WorkerDescription description;
  absl::Status lost;
};

WorkerDescription Description(int rank, int size) {
  WorkerDescription worker;
  worker.model_name = "m";
  worker.numerics_fingerprint = "f";
  worker.block_size = 16;
  worker.num_blocks = 100;
  worker.num_host_blocks = 10;
  worker.max_sequences = 8;
  worker.max_tokens_per_step = 64;
  worker.device = "cpu";
  worker.process_id = absl::StrCat("process ", rank);
  worker.keeps_rows = true;
  worker.place = {.group_id = "g", .rank = rank, .size = size};
  return worker;
}

class RankGroupClientTest : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  RankGroupClientTest() : calls_(kRanks) {
    std::vector<std::unique_ptr<WorkerClient>> ranks;
    for (int i = 0; i < kRanks; ++i) {
      auto rank = std::make_unique<FakeRank>(&calls_[i]);
      ranks_.push_back(rank.get());
      ranks.push_back(std::move(rank));
    }
    group_ = std::make_unique<RankGroupClient>(std::move(ranks));
    group_->SetListener(&loop_);
  }

  void Describe(uint64_t epoch) {
    group_->Describe(epoch);
    for (int i = 0; i < kRanks; ++i) ranks_[i]->listener->OnDescribed(epoch, Description(i, kRanks));
  }
  void Open(uint64_t epoch) {
    Describe(epoch);
    group_->Open(epoch, /*adopts=*/false);
    for (int i = 0; i < kRanks; ++i) ranks_[i]->listener->OnOpened(epoch, nullptr);
    loop_.told.clear();
    for (auto& calls : calls_) calls.clear();
  }
  static StepPlan Plan(uint64_t step) {
    StepPlan plan;
    plan.step = StepId{step};
    return plan;
  }
  static StepResult Result(uint64_t step, uint64_t digest, int num_slices = 0) {
    return {.step = StepId{step}, .slices = std::vector<SliceResult>(num_slices), .digest = digest};
  }
  static std::unique_ptr<WorkerInventory> Inventory(uint64_t digest, int num_rows = 0) {
    auto inventory = std::make_unique<WorkerInventory>();
    inventory->epoch = 4;
    inventory->last_step = StepId{9};
    inventory->digest = digest;
    inventory->rows.resize(num_rows);
    return inventory;
  }
  WorkerClient::Listener* from(int rank) { return ranks_[rank]->listener; }

  std::vector<std::vector<std::string>> calls_;  // Of each rank.
  std::vector<FakeRank*> ranks_;
  FakeLoop loop_;
  std::unique_ptr<RankGroupClient> group_;
};

TEST_F(RankGroupClientTest, TheLoopHearsOfADescriptionWhenAllRanksHaveAnswered) {
  group_->Describe(5);
  for (const auto& calls : calls_) EXPECT_THAT(calls, ElementsAre("describe 5"));
  WorkerDescription small = Description(1, kRanks);
  small.num_blocks = 70;
  small.max_sequences = 4;
  small.last_epoch = 30;
  WorkerDescription forgetful = Description(2, kRanks);
  forgetful.num_host_blocks = 2;
  forgetful.keeps_rows = false;
  forgetful.max_tokens_per_step = 32;
  forgetful.has_session = true;
  from(2)->OnDescribed(5, forgetful);
  from(0)->OnDescribed(5, Description(0, kRanks));
  EXPECT_THAT(loop_.told, IsEmpty());
  from(1)->OnDescribed(5, small);
  EXPECT_THAT(loop_.told, ElementsAre("described 5"));
  EXPECT_EQ(loop_.description.num_blocks, 70);
  EXPECT_EQ(loop_.description.num_host_blocks, 2);
  EXPECT_EQ(loop_.description.max_sequences, 4);
  EXPECT_EQ(loop_.description.max_tokens_per_step, 32);
  EXPECT_EQ(loop_.description.last_epoch, 30u);
  EXPECT_TRUE(loop_.description.has_session);
  EXPECT_FALSE(loop_.description.keeps_rows);
  EXPECT_EQ(loop_.description.device, "3 x cpu");
}

TEST_F(RankGroupClientTest, ARankThatDiffersGetsAllRefused) {
  group_->Describe(5);
  for (auto& calls : calls_) calls.clear();
  WorkerDescription other = Description(2, kRanks);
  other.block_size = 32;
  from(0)->OnDescribed(5, Description(0, kRanks));
  from(1)->OnDescribed(5, Description(1, kRanks));
  from(2)->OnDescribed(5, other);
  EXPECT_THAT(loop_.told, ElementsAre("lost 5"));
  EXPECT_EQ(loop_.lost.code(), absl::StatusCode::kFailedPrecondition);
  const std::string reason = "rank 2 describes block_size 32, and rank 0 16; they must be equal";
  EXPECT_EQ(loop_.lost.message(), reason);
  for (const auto& calls : calls_) EXPECT_THAT(calls, ElementsAre("refuse: " + reason));
}

TEST_F(RankGroupClientTest, TheRanksMustBeThereOnceEachInTheirOrder) {
  const auto error = [](std::vector<WorkerDescription> ranks) {
    return std::string(JoinDescriptions(ranks).status().message());
  };
  EXPECT_EQ(error({Description(0, 2), Description(1, 2)}), "");
  EXPECT_EQ(error({Description(1, 2), Description(0, 2)}),
            "the first rank describes itself as rank 1 of 2; expected was rank 0 of 2");
  EXPECT_EQ(error({Description(0, 3), Description(1, 3)}),
            "the first rank describes itself as rank 0 of 3; expected was rank 0 of 2");
  EXPECT_EQ(error({Description(0, 2), Description(0, 2)}),
            "rank 1 describes itself as rank 0 of 2 of group 'g'; expected was rank 1 of 2 of group 'g'");
  WorkerDescription of_other_group = Description(1, 2);
  of_other_group.place.group_id = "h";
  EXPECT_THAT(error({Description(0, 2), of_other_group}), HasSubstr("of group 'h'; expected was rank 1 of 2"));
  WorkerDescription twice = Description(1, 2);
  twice.process_id = "process 0";
  EXPECT_EQ(error({Description(0, 2), twice}), "rank 1 is the process of rank 0");
  WorkerDescription elsewhere = Description(1, 2);
  elsewhere.place.addresses = {"a:1", "b:1"};
  elsewhere.place.group_id = "h";
  EXPECT_EQ(error({Description(0, 2), elsewhere}),
            "rank 1 describes place.addresses [a:1,b:1], and rank 0 []; they must be equal");
  WorkerDescription other_weights = Description(1, 2);
  other_weights.numerics_fingerprint = "e";
  EXPECT_EQ(error({Description(0, 2), other_weights}),
            "rank 1 describes numerics_fingerprint e, and rank 0 f; they must be equal");
}

TEST_F(RankGroupClientTest, ASessionAdoptsWhatAllRanksHaveKept) {
  Describe(5);
  group_->Open(31, /*adopts=*/true);
  for (const auto& calls : calls_) EXPECT_THAT(calls, ElementsAre("describe 5", "open 31 1"));
  loop_.told.clear();
  from(1)->OnOpened(31, Inventory(7));
  from(0)->OnOpened(31, Inventory(7, /*num_rows=*/4));
  EXPECT_THAT(loop_.told, IsEmpty());
  from(2)->OnOpened(31, Inventory(7));
  EXPECT_THAT(loop_.told, ElementsAre("opened 31 4"));
}

TEST_F(RankGroupClientTest, ASessionThatCannotAdoptFails) {
  struct Case {
    std::unique_ptr<WorkerInventory> kept;
    const char* reason;
  };
  Case cases[3];
  cases[0] = {Inventory(8), "rank 2 has kept other rows than rank 0: its last step is 9 of epoch 4"};
  cases[1] = {nullptr, "rank 2 has kept nothing of the last session, and rank 0 rows"};
  cases[2] = {Inventory(7), "its last step is 8 of epoch 4, that of rank 0 9 of epoch 4"};
  cases[2].kept->last_step = StepId{8};
  uint64_t epoch = 5;
  for (Case& c : cases) {
    Describe(++epoch);
    group_->Open(epoch, /*adopts=*/true);
    loop_.told.clear();
    from(0)->OnOpened(epoch, Inventory(7, /*num_rows=*/4));
    from(1)->OnOpened(epoch, Inventory(7));
    from(2)->OnOpened(epoch, std::move(c.kept));
    EXPECT_THAT(loop_.told, ElementsAre(absl::StrCat("lost ", epoch)));
    EXPECT_EQ(loop_.lost.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(loop_.lost.message()), HasSubstr(c.reason));
    group_->Close();
  }
}

TEST_F(RankGroupClientTest, AStepIsCommittedWhenAllRanksHaveAnsweredIt) {
  Open(5);
  group_->Send(Plan(1));
  group_->Send(Plan(2));
  for (const auto& calls : calls_) EXPECT_THAT(calls, ElementsAre("send 1", "send 2"));
  from(1)->OnResult(5, Result(1, 11), 30);
  from(1)->OnResult(5, Result(2, 12), 10);
  from(0)->OnResult(5, Result(1, 11, /*num_slices=*/6), 20);
  EXPECT_THAT(loop_.told, IsEmpty());
  from(2)->OnResult(5, Result(1, 11), 25);
  EXPECT_THAT(loop_.told, ElementsAre("result 5 step 1 slices 6 30 us"));
  from(2)->OnResult(5, Result(2, 12), 11);
  from(0)->OnResult(5, Result(2, 12, /*num_slices=*/3), 12);
  EXPECT_THAT(loop_.told, ElementsAre("result 5 step 1 slices 6 30 us", "result 5 step 2 slices 3 12 us"));
}

TEST_F(RankGroupClientTest, RanksThatDrawOtherTokensLoseTheSession) {
  Open(5);
  group_->Send(Plan(1));
  from(0)->OnResult(5, Result(1, 11, /*num_slices=*/6), 20);
  from(1)->OnResult(5, Result(1, 11), 20);
  from(2)->OnResult(5, Result(1, 10), 20);
  EXPECT_THAT(loop_.told, ElementsAre("lost 5"));
  EXPECT_EQ(loop_.lost.message(), "rank 2 has computed another result in step 1 than rank 0 in step 1");
  EXPECT_EQ(ReasonOf(loop_.lost)->word, kRanksDiffer);
  for (auto& calls : calls_) calls.clear();
  group_->Send(Plan(2));  // The loop does not know yet.
  group_->Close();
  for (const auto& calls : calls_) EXPECT_THAT(calls, ElementsAre("close"));
}

TEST_F(RankGroupClientTest, ALostRankIsLostOnceAndNamed) {
  Open(5);
  const absl::Status reason = WithReason(absl::InternalError("logits are not finite"), "LOGITS_NOT_FINITE");
  from(1)->OnLost(5, reason);
  from(0)->OnLost(5, absl::UnavailableError("a rank of the group was lost"));
  from(2)->OnResult(5, Result(1, 11), 20);
  from(2)->OnDraining(5);
  EXPECT_THAT(loop_.told, ElementsAre("lost 5"));
  EXPECT_EQ(loop_.lost.message(), "rank 1: logits are not finite");
  EXPECT_EQ(ReasonOf(loop_.lost)->word, "LOGITS_NOT_FINITE");
  group_->Close();
  Describe(6);
  EXPECT_THAT(loop_.told, ElementsAre("lost 5", "described 6"));
}

TEST_F(RankGroupClientTest, AGroupDrainsWithItsFirstRank) {
  Open(5);
  from(2)->OnDraining(5);
  from(0)->OnDraining(5);
  EXPECT_THAT(loop_.told, ElementsAre("draining 5"));
}

TEST_F(RankGroupClientTest, AProbeIsAnsweredByAllRanks) {
  Open(5);
  group_->Probe(5);
  from(0)->OnProbed(5);
  from(1)->OnProbed(5);
  group_->Probe(5);  // Rank 2 still has the first one. What the others have answered is old now.
  from(2)->OnProbed(5);
  EXPECT_THAT(loop_.told, IsEmpty());
  from(0)->OnProbed(5);
  from(1)->OnProbed(5);
  EXPECT_THAT(loop_.told, ElementsAre("probed 5"));
}

TEST_F(RankGroupClientTest, AnswersOfAnEarlierAttemptAreDropped) {
  group_->Describe(5);
  from(0)->OnDescribed(5, Description(0, kRanks));
  group_->Close();
  group_->Describe(6);
  from(1)->OnDescribed(5, Description(1, kRanks));
  from(2)->OnDescribed(5, Description(2, kRanks));
  from(1)->OnDescribed(6, Description(1, kRanks));
  from(2)->OnDescribed(6, Description(2, kRanks));
  EXPECT_THAT(loop_.told, IsEmpty());
  from(0)->OnDescribed(6, Description(0, kRanks));
  EXPECT_THAT(loop_.told, ElementsAre("described 6"));
}

// The states as operators see them: ready, refused or connecting, and the reason.
std::vector<std::string> StatesOf(const RankGroupClient& group) {
  std::vector<std::string> states;
  if (group.ranks() == nullptr) return states;
  for (const RankState& rank : *group.ranks()) {
    states.push_back(absl::StrCat(rank.is_ready     ? "ready"
                                  : rank.is_refused ? "refused"
                                                    : "connecting",
                                  ": ", rank.last_error));
  }
  return states;
}

TEST_F(RankGroupClientTest, OperatorsSeeWhichRankIsMissing) {
  EXPECT_THAT(StatesOf(*group_), IsEmpty());
  group_->Describe(5);
  from(0)->OnDescribed(5, Description(0, kRanks));
  from(2)->OnDescribed(5, Description(2, kRanks));
  EXPECT_EQ((*group_->ranks())[0].device, "cpu");
  EXPECT_EQ((*group_->ranks())[1].device, "");
  EXPECT_THAT(StatesOf(*group_), ElementsAre("connecting: ", "connecting: ", "connecting: "));
  group_->Close();  // The time is up.
  EXPECT_THAT(StatesOf(*group_),
              ElementsAre("connecting: ", "connecting: it has not described itself", "connecting: "));
  Describe(6);
  group_->Open(6, /*adopts=*/false);
  from(0)->OnOpened(6, nullptr);
  EXPECT_THAT(StatesOf(*group_), ElementsAre("ready: ", "connecting: it has not described itself", "connecting: "));
  from(2)->OnLost(6, absl::FailedPreconditionError("the term is over"));
  from(1)->OnLost(6, absl::UnavailableError("a rank of the group was lost"));
  EXPECT_THAT(StatesOf(*group_), ElementsAre("connecting: ", "connecting: ", "refused: the term is over"));
  group_->Close();
  EXPECT_THAT(StatesOf(*group_), ElementsAre("connecting: ", "connecting: ", "refused: the term is over"));
  Open(7);
  EXPECT_THAT(StatesOf(*group_), ElementsAre("ready: ", "ready: ", "ready: "));
  group_->Probe(7);
  from(0)->OnProbed(7);
  from(1)->OnProbed(7);
  group_->Close();
  EXPECT_THAT(StatesOf(*group_),
              ElementsAre("connecting: ", "connecting: ", "connecting: it has not answered a probe"));
  Open(8);
  group_->Close();
  EXPECT_THAT(StatesOf(*group_), ElementsAre("connecting: ", "connecting: ", "connecting: "));
}

// The ranks of a group that is found by the address of rank 0.
class FoundRanksTest : public testing::Test {
 protected:
  FoundRanksTest()
      : group_("host:50061", [this](const std::string& address) {
          auto rank = std::make_unique<FakeRank>(&calls_.emplace_back());
          addresses_.push_back(address);
          ranks_.push_back(rank.get());
          return rank;
        }) {
    group_.SetListener(&loop_);
  }

  static WorkerDescription Rank(int rank, int size) {
    WorkerDescription worker = Description(rank, size);
    worker.place.transport_address = absl::StrCat("address ", rank);
    worker.numerics_fingerprint = "/cpu";
    worker.weights.emplace("a config");
    worker.weights->Set("a", rank == 0 ? "12" : "");
    worker.weights->Set("b", rank == 1 ? "34" : "");
    return worker;
  }

  std::deque<std::vector<std::string>> calls_;
  std::vector<FakeRank*> ranks_;
  std::vector<std::string> addresses_;
  FakeLoop loop_;
  RankGroupClient group_;
};

TEST_F(FoundRanksTest, WorkerWithAWholeModelIsServedAlone) {
  group_.Describe(5);
  ranks_[0]->listener->OnDescribed(5, Description(0, 1));
  EXPECT_THAT(loop_.told, ElementsAre("described 5"));
  EXPECT_EQ(loop_.description.device, "cpu");
  group_.Open(5, /*adopts=*/true);
  EXPECT_TRUE(ranks_[0]->group.transport_addresses.empty());
  ranks_[0]->listener->OnLost(5, absl::UnavailableError("gone"));
  EXPECT_EQ(loop_.lost.message(), "gone");
  EXPECT_EQ(group_.ranks(), nullptr);
  EXPECT_THAT(addresses_, ElementsAre("host:50061"));
}

TEST_F(FoundRanksTest, OtherRanksAreAtTheNextPorts) {
  for (const uint64_t epoch : {5, 6}) {
    loop_.told.clear();
    group_.Describe(epoch);
    ranks_[0]->listener->OnDescribed(epoch, Rank(0, 2));
    EXPECT_THAT(loop_.told, IsEmpty());
    EXPECT_THAT(addresses_, ElementsAre("host:50061", "host:50062"));
    EXPECT_EQ(calls_[1].back(), absl::StrCat("describe ", epoch));
    ranks_[1]->listener->OnDescribed(epoch, Rank(1, 2));
    EXPECT_THAT(loop_.told, ElementsAre(absl::StrCat("described ", epoch)));
    group_.Open(epoch, /*adopts=*/false);
    for (FakeRank* rank : ranks_) {
      EXPECT_THAT(rank->group.transport_addresses, ElementsAre("address 0", "address 1"));
      EXPECT_EQ(rank->group.key.size(), 32u);
      EXPECT_EQ(rank->group.key, ranks_[0]->group.key);
      EXPECT_EQ(rank->calls.back(), absl::StrCat("open ", epoch, " 0"));
    }
    group_.Close();
    for (const auto& calls : calls_) EXPECT_EQ(calls.back(), "close");
  }
}

TEST_F(FoundRanksTest, RanksOnOtherHostsAreWhereRankZeroSays) {
  const auto rank = [](int number, const std::string& other_host) {
    WorkerDescription worker = Rank(number, 2);
    worker.place.addresses = {"10.0.0.1:50061", other_host};
    return worker;
  };
  // The manager knows rank 0 by another name than its host does. A host that moves is found again, also when it moves
  // back.
  for (const uint64_t epoch : {5, 6, 7}) {
    const std::string other_host = epoch == 6 ? "10.0.0.3:50061" : "10.0.0.2:50061";
    loop_.told.clear();
    group_.Describe(epoch);
    ranks_[0]->listener->OnDescribed(epoch, rank(0, other_host));
    const int place = epoch == 6 ? 2 : 1;
    ASSERT_GT(calls_.size(), static_cast<size_t>(place));
    EXPECT_EQ(calls_[place].back(), absl::StrCat("describe ", epoch));
    ranks_[place]->listener->OnDescribed(epoch, rank(1, other_host));
    EXPECT_EQ(group_.ranks()->at(0).address, "host:50061");
    EXPECT_EQ(group_.ranks()->at(1).address, other_host);
    EXPECT_THAT(loop_.told, ElementsAre(absl::StrCat("described ", epoch)));
    group_.Open(epoch, /*adopts=*/false);
    EXPECT_EQ(calls_[place].back(), absl::StrCat("open ", epoch, " 0"));
    group_.Close();
    EXPECT_EQ(calls_[place].back(), "close");
    EXPECT_EQ(calls_[1].back(), "close");
  }
  EXPECT_THAT(addresses_, ElementsAre("host:50061", "10.0.0.2:50061", "10.0.0.3:50061"));
}

TEST_F(FoundRanksTest, RankThatAnswersWithinTheCallMayBeRefused) {
  group_.Describe(5);
  ranks_[0]->listener->OnDescribed(5, Rank(0, 2));
  group_.Close();
  WorkerDescription other = Rank(1, 2);
  other.model_name = "another";
  ranks_[1]->answer = other;
  group_.Describe(6);
  ranks_[0]->listener->OnDescribed(6, Rank(0, 2));
  EXPECT_EQ(loop_.told.back(), "lost 6");
  for (const auto& calls : calls_) EXPECT_THAT(calls.back(), HasSubstr("refuse: rank 1 describes model_name another"));
}

TEST_F(FoundRanksTest, DigestsOfAllRanksNameTheWeights) {
  group_.Describe(5);
  ranks_[0]->listener->OnDescribed(5, Rank(0, 2));
  ranks_[1]->listener->OnDescribed(5, Rank(1, 2));
  TensorDigests all("a config");
  all.Set("a", "12");
  all.Set("b", "34");
  EXPECT_EQ(loop_.description.numerics_fingerprint, all.fingerprint() + "/cpu");
  EXPECT_FALSE(loop_.description.weights.has_value());
  WorkerDescription other = Rank(1, 2);
  other.weights.emplace("another config");
  EXPECT_EQ(JoinDescriptions({Rank(0, 2), other}).status().code(), absl::StatusCode::kFailedPrecondition);
  WorkerDescription silent = Rank(1, 2);
  silent.weights->Set("b", "");
  EXPECT_EQ(JoinDescriptions({Rank(0, 2), silent}).status().message(), "no rank tells the digest of some tensor");
}

TEST(RankAddressTest, RanksAreAtTheNextPortsOrPaths) {
  EXPECT_EQ(RankAddress("host:50061", 0), "host:50061");
  EXPECT_EQ(RankAddress("host:50061", 3), "host:50064");
  EXPECT_EQ(RankAddress("[::1]:50061", 1), "[::1]:50062");
  EXPECT_EQ(RankAddress("unix:/run/w.sock", 1), "unix:/run/w.sock.1");
}

}  // namespace
}  // namespace quire
