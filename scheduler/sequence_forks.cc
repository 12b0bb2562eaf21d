// SPDX-License-Identifier: Apache-2.0

#include "scheduler/sequence_forks.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/worker_protocol.h"

namespace quire {

void SequenceForks::ForkSamples(SequenceGroup* group, const Sequence& before, std::vector<SequenceFork>* forks) {
  Sequence& parent = *group->sequences().front();
  parent.OnShared();
  const int num_computed = parent.num_computed_tokens();
  const int num_children = group->num_to_fork();
  group->OnForked();
  for (int i = 1; i <= num_children; ++i) {
    Sequence* child = group->Add(before.Fork(NewSequenceId(), i));
    child->OnTableChanged(parent.first_changed_block());
    blocks_->Fork(parent.id(), child->id(), num_computed);
    blocks_->ShareSheets(parent.id(), child->id(), num_computed);
    child->EnterRow(group->TakeSpareRow(), num_computed);
    forks->push_back({child->row(), parent.row(), child->id(), static_cast<uint32_t>(i)});
    ++num_forks_;
  }
}

void SequenceForks::ReplaceBeams(SequenceGroup* group, absl::Span<const BeamSearch::Extension> extensions) {
  SequenceGroup::Sequences old = group->TakeSequences();
  std::vector<int> num_children(old.size(), 0);
  for (const BeamSearch::Extension& extension : extensions) ++num_children[extension.parent];
  for (size_t i = 0; i < old.size(); ++i) {
    if (num_children[i] > 0) continue;
    blocks_->Free(old[i]->id());
    if (group->is_running()) running_->MakeRowSpare(*old[i], group);
  }
  SequenceGroup::Sequences beams(extensions.size());
  for (size_t i = 0; i < extensions.size(); ++i) {
    Sequence& parent = *old[extensions[i].parent];
    if (--num_children[extensions[i].parent] == 0) continue;
    beams[i] = std::make_unique<Sequence>(parent.Fork(NewSequenceId(), /*sample_index=*/0));
    blocks_->Fork(parent.id(), beams[i]->id(), parent.num_computed_tokens());
    blocks_->ShareSheets(parent.id(), beams[i]->id(), parent.num_computed_tokens());
    parent.OnShared();
    if (group->is_running()) beams[i]->ForkRow(group->TakeSpareRow(), parent.row());
    ++num_forks_;
  }
  for (size_t i = 0; i < extensions.size(); ++i) {
    if (beams[i] == nullptr) beams[i] = std::move(old[extensions[i].parent]);
    beams[i]->Append(extensions[i].token);
    beams[i]->has_pending_append = group->is_running();
  }
  group->SetSequences(std::move(beams));
}

void SequenceForks::PlanBeamRows(absl::Span<SequenceGroup* const> groups, bool keeps_rows, StepPlan* plan) {
  size_t num_search_bytes = 0;
  for (SequenceGroup* group : groups) {
    if (group->beam_search() == nullptr) continue;
    const Request& request = group->request();
    const Sequence& best = *group->sequences().front();
    if (keeps_rows && request.record != nullptr && best.has_pending_append && num_search_bytes < kMaxSearchBytes) {
      plan->records.push_back({best.row(), request.record, group->progress().num_cached_tokens,
                               EncodeBeamSearchState(group->SearchState()), group->progress().num_moves,
                               best.numerics_change()});
      const size_t num_bytes = plan->records.back().search.size() + request.record->size();
      if (num_bytes > kMaxRecordBytes || num_search_bytes + num_bytes > kMaxSearchBytes) {
        plan->records.pop_back();
      } else {
        num_search_bytes += num_bytes;
      }
    }
    for (const auto& beam : group->sequences()) {
      if (std::optional<RowId> parent = std::exchange(beam->pending_fork, std::nullopt); parent.has_value()) {
        plan->forks.push_back({beam->row(), *parent, beam->id(), static_cast<uint32_t>(beam->sample_index())});
      }
      if (std::exchange(beam->has_pending_append, false)) {
        plan->appends.push_back({beam->row(), beam->tokens().back()});
      }
    }
  }
}

}  // namespace quire
