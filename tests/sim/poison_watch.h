// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_POISON_WATCH_H_
#define QUIRE_TESTS_SIM_POISON_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "scheduler/step_plan.h"

namespace quire {

// A request that makes every worker fail when its token at this position is computed, in any or in one of its
// sequences.
struct Poison {
  uint64_t seed = 0;      // The seed of the request, which no other request has.
  int position = 0;       // Counted from 0.
  bool is_named = false;  // The worker survives and names the sequence.
  // The worker reports the failure of the sequence in its result, and its session continues.
  bool is_reported = false;
  // Only the sample with this index makes workers fail. In a beam search these are the beams whose token there is
  // congruent to it modulo 2.
  std::optional<int> sample = std::nullopt;

  bool operator==(const Poison&) const = default;
};

// Reads the plans of one worker and tells when it must fail.
class PoisonWatch {
 public:
  void Add(const Poison& poison) { poisons_.push_back(poison); }

  // The worker is about to execute this plan. Returns the poison that makes it fail, and the sequence that it is in.
  std::optional<std::pair<Poison, SequenceId>> OnPlan(const StepPlan& plan);

  struct FailedSlice {
    int index;  // Of the slice in its plan.
    SequenceId sequence;
    uint64_t seed;       // Of the request.
    int first_position;  // From here on, what the slice stores is of no use.
  };
  // The slices of the last plan whose sequences have failed, in this plan or before.
  const std::vector<FailedSlice>& failed_slices() const { return failed_slices_; }

  // The session is over.
  void Reset() {
    rows_.clear();
    failed_.clear();
  }

 private:
  // Notes whether a sequence fails alone in the slice.
  void NoteFailure(int index, const SequenceSlice& slice, const SequenceStart& row);
  static bool IsHit(const Poison& poison, const SequenceStart& row, const SequenceSlice& slice);

  std::vector<Poison> poisons_;
  // What each row has been told. The tokens of a beam are complete; others lack what the worker has drawn.
  std::map<RowId, SequenceStart> rows_;
  std::set<RowId> failed_;
  std::vector<FailedSlice> failed_slices_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_POISON_WATCH_H_
