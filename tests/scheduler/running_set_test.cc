// SPDX-License-Identifier: Apache-2.0

#include "scheduler/running_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

using ::testing::ElementsAre;

Request OneTokenRequest() {
  Request request;
  request.prompt = {1};
  return request;
}

TEST(RunningSetTest, GroupsAreInTheOrderOfServiceHoweverTheyEnter) {
  SequenceGroup first(OneTokenRequest(), {0, 0}, SequenceId{1});
  SequenceGroup second(OneTokenRequest(), {0, 1}, SequenceId{2});
  SequenceGroup urgent(OneTokenRequest(), {-1, 2}, SequenceId{3});
  RunningSet running(3);
  running.Add(&second);
  running.Add(&urgent);
  running.Add(&first);
  EXPECT_THAT(running.groups(), ElementsAre(&urgent, &first, &second));
  running.Remove(&first);
  EXPECT_THAT(running.groups(), ElementsAre(&urgent, &second));
}

bool Nobody(const SequenceGroup& /*group*/) {
  return false;
}

TEST(RunningSetTest, OnlyRunningGroupsAreVictimsAndOneIsSpared) {
  SequenceGroup a(OneTokenRequest(), {0, 0}, SequenceId{1});
  SequenceGroup b(OneTokenRequest(), {0, 1}, SequenceId{2});
  RunningSet running(2);
  running.Add(&a);
  EXPECT_EQ(running.CheapestVictim(Nobody), nullptr);
  running.Add(&b);
  EXPECT_EQ(running.CheapestVictim(Nobody), &b);
  b.sequences()[0]->EnterRow(running.TakeRow(), 0);
  running.Suspend(&b, SequenceGroup::State::kWaiting);
  EXPECT_EQ(running.size(), 2) << "a walk over the groups continues";
  EXPECT_EQ(running.CheapestVictim(Nobody), nullptr);
  running.EraseSuspended();
  EXPECT_THAT(running.groups(), ElementsAre(&a));
}

TEST(RunningSetTest, AGroupOverItsShareIsAVictimBeforeALessUrgentOne) {
  SequenceGroup urgent(OneTokenRequest(), {0, 0}, SequenceId{1});
  SequenceGroup other(OneTokenRequest(), {1, 1}, SequenceId{2});
  RunningSet running(2);
  running.Add(&urgent);
  running.Add(&other);
  EXPECT_EQ(running.CheapestVictim(Nobody), &other);
  EXPECT_EQ(running.CheapestVictim([&](const SequenceGroup& group) { return &group == &urgent; }), &urgent);
}

TEST(RunningSetTest, SuspendedGroupFreesItsRowsAndItsSpareRows) {
  SequenceGroup group(OneTokenRequest(), {0, 0}, SequenceId{1});
  RunningSet running(3);
  running.Add(&group);
  group.sequences()[0]->EnterRow(running.TakeRow(), 0);
  group.AddSpareRow(running.TakeRow());
  EXPECT_EQ(running.num_free_rows(), 1);
  running.Suspend(&group, SequenceGroup::State::kSwapped);
  EXPECT_EQ(running.num_free_rows(), 3);
  EXPECT_TRUE(group.is_swapped());
}

TEST(RunningSetTest, RowHasAnOwnerUntilItsSequenceLeavesIt) {
  SequenceGroup group(OneTokenRequest(), {0, 0}, SequenceId{1});
  Sequence* sequence = group.sequences()[0].get();
  RunningSet running(2);
  running.Add(&group);
  sequence->EnterRow(running.TakeRow(), 0);
  EXPECT_EQ(running.OwnerOf(sequence->row()).sequence, nullptr) << "it has had no slice";
  running.SetOwner(sequence->row(), &group, sequence);
  EXPECT_EQ(running.OwnerOf(sequence->row()).sequence, sequence);
  running.MakeRowSpare(*sequence, &group);
  EXPECT_EQ(running.OwnerOf(sequence->row()).sequence, nullptr);
  EXPECT_EQ(running.num_free_rows(), 1);
  EXPECT_EQ(group.TakeSpareRow(), sequence->row());
}

TEST(RunningSetTest, KeptRowsAreTakenLastAndTheFirstOneFirst) {
  RunningSet running(4);
  running.KeepRows({RowId{2}, RowId{0}});
  running.TakeRows({RowId{3}});
  EXPECT_EQ(running.num_free_rows(), 3);
  std::vector<RowId> taken;
  while (running.num_free_rows() > 0) taken.push_back(running.TakeRow());
  EXPECT_THAT(taken, ElementsAre(RowId{1}, RowId{2}, RowId{0}));
}

}  // namespace
}  // namespace quire
