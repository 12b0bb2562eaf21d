// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_SEQUENCE_FORKS_H_
#define QUIRE_SCHEDULER_SEQUENCE_FORKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/beam_search.h"
#include "scheduler/block_manager.h"
#include "scheduler/running_set.h"
#include "scheduler/sequence_group.h"
#include "scheduler/step_plan.h"

namespace quire {

// Forks the sequences of a group: the samples of a prompt, and the beams of a search. A fork gets a new id, shares the
// blocks of its parent, and runs in a spare row of its group. Owned by the step-loop thread.
class SequenceForks {
 public:
  // Both pointers are borrowed and outlive this.
  SequenceForks(BlockManager* blocks, RunningSet* running) : blocks_(blocks), running_(running) {}

  // An id that no sequence of this scheduler has had.
  SequenceId NewSequenceId() { return SequenceId{++num_sequences_}; }
  // The sequences of an earlier scheduler have ids up to this one.
  void SkipTo(SequenceId last) { num_sequences_ = std::max(num_sequences_, Value(last)); }

  // The slice that ends the prompt has just been planned: adds the group's other samples, which draw from the logits of
  // that slice. `before` is the group's sequence as it was before the slice, because that is what the worker copies to
  // the rows of the samples. Appends the forks that the worker must make to `forks`.
  // REQUIRES: the group runs, has one sequence, and num_to_fork() > 0.
  void ForkSamples(SequenceGroup* group, const Sequence& before, std::vector<SequenceFork>* forks);

  // Replaces the group's beams by the ones that the search has chosen, where extensions[i] describes the new beam i.
  // Dead beams are freed first, so that the children of the survivors can take their blocks and rows. The last child of
  // a beam is that beam itself and stays in its row. The worker is told by PlanBeamRows.
  void ReplaceBeams(SequenceGroup* group, absl::Span<const BeamSearch::Extension> extensions);

  // Adds to `plan` what ReplaceBeams has changed in the rows of `groups` since the last plan: rows that become a copy
  // of another row, and tokens that are appended to rows. With `keeps_rows`, the row of the best beam of a request with
  // a record also gets what the search has become, as long as that is short enough: at most kMaxSearchBytes for all
  // requests. The next manager computes a request again whose row has an older record.
  static void PlanBeamRows(absl::Span<SequenceGroup* const> groups, bool keeps_rows, StepPlan* plan);
  static constexpr size_t kMaxSearchBytes = 8 << 20;

  int64_t num_forks() const { return num_forks_; }

 private:
  BlockManager* const blocks_;
  RunningSet* const running_;
  uint64_t num_sequences_ = 0;  // Ids given out.
  int64_t num_forks_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SEQUENCE_FORKS_H_
