#include "tests/sim/poison_watch.h"

namespace quire {

std::optional<std::pair<Poison, SequenceId>> PoisonWatch::OnPlan(const StepPlan& plan) {
  for (const SequenceStart& start : plan.starts) {
    rows_.insert_or_assign(start.row, Row{start.sequence, start.sampling.seed});
  }
  for (const SequenceFork& fork : plan.forks) {
    const auto parent = rows_.find(fork.parent);
    if (parent != rows_.end()) rows_.insert_or_assign(fork.row, Row{fork.sequence, parent->second.seed});
  }
  for (const SequenceSlice& slice : plan.slices) {
    const auto row = rows_.find(slice.row);
    if (row == rows_.end()) continue;
    for (const Poison& poison : poisons_) {
      const bool is_computed =
          slice.first_position <= poison.position && poison.position < slice.first_position + slice.num_tokens;
      if (poison.seed == row->second.seed && is_computed) return std::pair(poison, row->second.sequence);
    }
  }
  return std::nullopt;
}

}  // namespace quire
