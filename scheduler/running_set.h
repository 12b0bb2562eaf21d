// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_RUNNING_SET_H_
#define QUIRE_SCHEDULER_RUNNING_SET_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/free_rows.h"
#include "scheduler/sequence_group.h"

namespace quire {

// The groups that run and the worker's rows that they run in. A group that does not run is in the WaitingQueue instead.
// The groups are borrowed: the caller removes a group before it destroys it. Owned by the step-loop thread.
class RunningSet {
 public:
  // The sequence that runs in a row. A row has no owner (`sequence` is null) while it is free or spare, and until its
  // sequence has had a slice.
  struct RowOwner {
    SequenceId id{0};
    SequenceGroup* group = nullptr;
    Sequence* sequence = nullptr;
  };

  explicit RunningSet(int num_rows) : free_rows_(num_rows), owners_(num_rows) {}

  bool empty() const { return groups_.empty(); }
  int size() const { return static_cast<int>(groups_.size()); }
  // The groups in the order of service. Valid until the next call of Add, Remove or EraseSuspended.
  absl::Span<SequenceGroup* const> groups() const { return groups_; }

  // The group runs from here on. Its rows are taken with TakeRow.
  void Add(SequenceGroup* group);

  // Takes the group out of the set and frees its rows. The caller then destroys the group. REQUIRES: the group runs.
  void Remove(SequenceGroup* group);

  // Frees the group's rows and changes its state to `state`, but leaves it in groups() until EraseSuspended is called,
  // so that a walk over groups() may suspend any of them. REQUIRES: the group runs; `state` is not kRunning.
  void Suspend(SequenceGroup* group, SequenceGroup::State state);
  void EraseSuspended();

  // The group to preempt when blocks run out. Groups for which `is_over_share` is true come first, then the groups of
  // the least urgent priority. Among them it is the one that loses the least work, and among equals the last one that
  // was submitted. Returns null when fewer than two groups run, because the last one keeps its blocks.
  SequenceGroup* CheapestVictim(absl::FunctionRef<bool(const SequenceGroup&)> is_over_share) const;

  int num_free_rows() const { return free_rows_.size(); }
  RowId TakeRow() { return free_rows_.Take(); }  // REQUIRES: num_free_rows() > 0.

  void TakeRows(const std::vector<RowId>& rows) { free_rows_.Take(rows); }  // REQUIRES: they are free and differ.
  void KeepRows(const std::vector<RowId>& rows) { free_rows_.Keep(rows); }  // See FreeRows::Keep.

  // Frees the row of one sequence, which leaves its group.
  void FreeRowOf(const Sequence& sequence);
  // Turns the row of one sequence, which leaves its group, into a spare row of that group.
  void MakeRowSpare(const Sequence& sequence, SequenceGroup* group);

  const RowOwner& OwnerOf(RowId row) const { return owners_[Value(row)]; }
  void SetOwner(RowId row, SequenceGroup* group, Sequence* sequence) {
    owners_[Value(row)] = {sequence->id(), group, sequence};
  }

 private:
  void FreeAllRows(SequenceGroup* group);

  std::vector<SequenceGroup*> groups_;  // Sorted by rank.
  FreeRows free_rows_;
  std::vector<RowOwner> owners_;  // Indexed by row. They save two lookups per committed slice.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_RUNNING_SET_H_
