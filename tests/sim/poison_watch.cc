// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/poison_watch.h"

namespace quire {

std::optional<std::pair<Poison, SequenceId>> PoisonWatch::OnPlan(const StepPlan& plan) {
  failed_slices_.clear();
  for (const RowId row : plan.end_rows) failed_.erase(row);
  for (const SequenceStart& start : plan.starts) {
    rows_.insert_or_assign(start.row, start);
    failed_.erase(start.row);
  }
  for (const SequenceFork& fork : plan.forks) {
    const auto parent = rows_.find(fork.parent);
    if (parent == rows_.end()) continue;
    if (failed_.contains(fork.parent)) {
      failed_.insert(fork.row);
    } else {
      failed_.erase(fork.row);
    }
    SequenceStart start = parent->second;
    start.sequence = fork.sequence;
    start.sample_index = fork.sample_index;
    rows_.insert_or_assign(fork.row, std::move(start));
  }
  for (const TokenAppend& append : plan.appends) {
    const auto row = rows_.find(append.row);
    if (row != rows_.end()) row->second.tokens.push_back(append.token);
  }
  for (const SequenceSlice& slice : plan.slices) {
    const auto row = rows_.find(slice.row);
    if (row == rows_.end()) continue;
    for (const Poison& poison : poisons_) {
      if (!poison.is_reported && IsHit(poison, row->second, slice)) return std::pair(poison, row->second.sequence);
    }
    NoteFailure(static_cast<int>(&slice - plan.slices.data()), slice, row->second);
  }
  return std::nullopt;
}

void PoisonWatch::NoteFailure(int index, const SequenceSlice& slice, const SequenceStart& row) {
  if (failed_.contains(slice.row)) {
    failed_slices_.push_back({index, row.sequence, row.sampling.seed, slice.first_position});
    return;
  }
  for (const Poison& poison : poisons_) {
    if (!poison.is_reported || !IsHit(poison, row, slice)) continue;
    failed_.insert(slice.row);
    failed_slices_.push_back({index, row.sequence, row.sampling.seed, poison.position});
    return;
  }
}

bool PoisonWatch::IsHit(const Poison& poison, const SequenceStart& row, const SequenceSlice& slice) {
  const bool is_computed =
      slice.first_position <= poison.position && poison.position < slice.first_position + slice.num_tokens;
  if (poison.seed != row.sampling.seed || !is_computed) return false;
  if (!poison.sample.has_value()) return true;
  if (row.sampling.num_candidates == 0) return *poison.sample == static_cast<int>(row.sample_index);
  return row.tokens.at(poison.position) % 2 == *poison.sample % 2;
}

}  // namespace quire
