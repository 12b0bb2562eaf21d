// SPDX-License-Identifier: Apache-2.0

#include "worker/label_keeper.h"

#include <algorithm>

#include "base/check.h"
#include "base/num_blocks.h"

namespace quire {

void LabelKeeper::Begin(const v1::StepPlan& plan, absl::Span<const BatchSlice> slices) {
  Step step = std::move(spare_);
  step.moves.clear();
  step.slices.clear();
  step.tokens.clear();
  step.tables.clear();
  for (int i = 0; i < plan.swap_out_blocks_size(); ++i) {
    step.moves.push_back({plan.swap_out_blocks(i), num_blocks_ + plan.swap_out_host_blocks(i)});
  }
  for (int i = 0; i < plan.swap_in_blocks_size(); ++i) {
    step.moves.push_back({num_blocks_ + plan.swap_in_host_blocks(i), plan.swap_in_blocks(i)});
  }
  for (int i = 0; i < plan.copy_sources_size(); ++i) {
    step.moves.push_back({plan.copy_sources(i), plan.copy_destinations(i)});
  }
  for (const BatchSlice& slice : slices) {
    if (slice.num_tokens == 0 && !slice.is_repeat) continue;
    const SequenceRow& row = *slice.row;
    const int num_known = row.num_tokens() - row.num_pending();
    const int num_blocks = NumBlocksFor(slice.end_position(), block_size_);
    const absl::Span<const uint32_t> table = row.block_table().first(num_blocks);
    step.slices.push_back({.row = &row,
                           .sequence = row.sequence(),
                           .cache_root = row.cache_root(),
                           .first_position = slice.first_position,
                           .num_tokens = slice.num_tokens,
                           .num_unknown = std::max(0, slice.end_position() - num_known),
                           .first_token = static_cast<int>(step.tokens.size()),
                           .first_entry = static_cast<int>(step.tables.size()),
                           .table_length = num_blocks});
    const absl::Span<const TokenId> tokens = row.tokens().subspan(slice.first_position, slice.num_tokens);
    step.tokens.insert(step.tokens.end(), tokens.begin(), tokens.end());
    step.tables.insert(step.tables.end(), table.begin(), table.end());
  }
  begun_.push_back(std::move(step));
}

void LabelKeeper::Finish(const google::protobuf::RepeatedPtrField<v1::SequenceFailure>& failures) {
  for (Step& step : begun_) Resolve(&step);
  Step& step = begun_.front();
  for (const auto& [source, destination] : step.moves) labels_.Copy(source, destination);
  for (const Slice& slice : step.slices) {
    const auto table = absl::MakeConstSpan(step.tables).subspan(slice.first_entry, slice.table_length);
    const bool has_failed = std::any_of(failures.begin(), failures.end(), [&](const v1::SequenceFailure& failure) {
      return failure.sequence() == Value(slice.sequence);
    });
    if (has_failed) {
      labels_.WriteUnlabelled(table, 0);
      continue;
    }
    if (slice.num_tokens == 0) continue;
    if (slice.cache_root == nullptr) {
      labels_.WriteUnlabelled(table, slice.first_position);
      continue;
    }
    QUIRE_CHECK_EQ(slice.num_unknown, 0);
    labels_.Write(*slice.cache_root, table, slice.first_position,
                  absl::MakeConstSpan(step.tokens).subspan(slice.first_token, slice.num_tokens));
  }
  spare_ = std::move(step);
  begun_.pop_front();
}

void LabelKeeper::Clear() {
  begun_.clear();
  labels_.Clear();
}

void LabelKeeper::Resolve(Step* step) {
  for (Slice& slice : step->slices) {
    if (slice.num_unknown == 0) continue;
    const int num_known = slice.row->num_tokens() - slice.row->num_pending();
    const int end = slice.first_position + slice.num_tokens;
    for (; slice.num_unknown > 0 && end - slice.num_unknown < num_known; --slice.num_unknown) {
      const int position = end - slice.num_unknown;
      step->tokens[slice.first_token + position - slice.first_position] = slice.row->tokens()[position];
    }
  }
}

}  // namespace quire
