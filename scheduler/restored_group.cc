// SPDX-License-Identifier: Apache-2.0

#include "scheduler/restored_group.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"

namespace quire {

std::unique_ptr<SequenceGroup> MakeRestoredGroup(RestoredRequest* restored, ServiceRank rank, SequenceId first) {
  auto group = std::make_unique<SequenceGroup>(std::move(restored->request), rank, first);
  group->progress().has_started = true;
  group->progress().num_cached_tokens = restored->num_cached_tokens;
  // The rows that this scheduler starts are later than those that other workers have of the request.
  group->progress().num_moves = restored->num_moves + 1;
  if (restored->samples.empty()) {
    group->sequences().front()->SetComputedBefore(restored->num_computed);
    if (restored->has_changed_numerics) group->sequences().front()->ChangeNumerics(/*has_begun=*/false);
    return group;
  }
  SequenceGroup::Sequences sequences;
  for (RestoredRequest::Sample& sample : restored->samples) {
    auto sequence = std::make_unique<Sequence>(sample.sequence, sample.sample_index, group->request().prompt,
                                               group->request().max_tokens);
    sequence->Restore(sample.row, std::move(sample.tokens), sample.num_stored, sample.num_computed);
    sequence->scores = std::move(sample.scores);
    sequence->RestoreNumericsChange(sample.numerics_change);
    if (group->beam_search() != nullptr) sequence->ShareThePromptOnly();
    sequences.push_back(std::move(sequence));
  }
  if (sequences.front()->num_generated_tokens() > 0) group->OnForked();
  group->progress().next_prompt_logprob += static_cast<int>(restored->prompt_scores.size());
  group->prompt_scores() = std::move(restored->prompt_scores);
  if (restored->search.has_value()) {
    group->beam_search()->Restore(*restored->search);
    group->progress().num_emitted_tokens = static_cast<int>(group->beam_search()->agreed_tokens().size());
  }
  group->SetSequences(std::move(sequences));
  return group;
}

bool SharesPrompt(const SequenceGroup& group, const BlockManager& blocks) {
  const size_t num_full = group.request().prompt.size() / static_cast<size_t>(blocks.block_size());
  const absl::Span<const BlockId> first = blocks.Table(group.sequences().front()->id());
  return std::all_of(group.sequences().begin(), group.sequences().end(), [&](const auto& sequence) {
    const absl::Span<const BlockId> table = blocks.Table(sequence->id());
    return group.num_sequences() == 1 || (std::min(first.size(), table.size()) >= num_full &&
                                          std::equal(table.begin(), table.begin() + num_full, first.begin()));
  });
}

}  // namespace quire
