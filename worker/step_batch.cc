// SPDX-License-Identifier: Apache-2.0

#include "worker/step_batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/attention.h"

namespace quire {
namespace {

// Returns whether the manager made the plan before it knew that the draw of the row's next token was postponed.
bool IsEarly(const v1::StepPlan& plan, int index, const SequenceRow& row) {
  return row.lacks_draw() && plan.slice_samples()[index] != 0 && plan.slice_num_tokens(index) == 1 &&
         plan.slice_first_positions(index) == static_cast<uint32_t>(row.num_tokens());
}

}  // namespace

StepBatch::StepBatch(const WorkerLimits& limits)
    : limits_(limits),
      writers_(limits.num_blocks),
      sliced_rows_(limits.max_sequences),
      forked_rows_(limits.max_sequences) {
  token_ids_.reserve(limits.max_tokens_per_step);
  positions_.reserve(limits.max_tokens_per_step);
  query_starts_.reserve(limits.max_sequences + 1);
  context_lens_.reserve(limits.max_sequences);
  for (int group = 0; group < static_cast<int>(limits.groups.size()); ++group) {
    for (int part = 0; part < limits.groups[group].blocks_per_sheet; ++part) {
      Column& column = columns_.emplace_back();
      column.group = group;
      column.part = part;
      column.slots.reserve(limits.max_tokens_per_step);
      column.table_starts.reserve(limits.max_sequences + 1);
    }
  }
  views_.resize(columns_.size());
}

absl::Status StepBatch::Build(const v1::StepPlan& plan, absl::Span<SequenceRow> rows) {
  Clear();
  for (const uint32_t row : plan.fork_rows()) forked_rows_.Mark(row);
  int first_token = 0;
  const uint32_t* tail = plan.block_tails().data();
  next_change_ = 0;
  next_change_block_ = plan.change_blocks().data();
  for (int i = 0; i < plan.slice_rows_size(); ++i) {
    SequenceRow& row = rows[plan.slice_rows(i)];
    QUIRE_RETURN_IF_ERROR(CheckSlice(plan, i, row));
    row.ChangeTable(plan.slice_first_changed_blocks(i), absl::MakeConstSpan(tail, plan.slice_tail_lengths(i)));
    tail += plan.slice_tail_lengths(i);
    slices_.push_back({.row = &row,
                       .row_index = static_cast<int>(plan.slice_rows(i)),
                       .first_position = static_cast<int>(plan.slice_first_positions(i)),
                       .num_tokens = static_cast<int>(plan.slice_num_tokens(i)),
                       .first_token = first_token,
                       .last_token = first_token + static_cast<int>(plan.slice_num_tokens(i)) - 1,
                       .is_sampling = plan.slice_samples()[i] != 0});
    BatchSlice& slice = slices_.back();
    if (IsEarly(plan, i, row)) {
      slice.is_early = true;
      slice.num_tokens = 0;
    } else if (slice.num_tokens == 0 && !forked_rows_.IsMarked(plan.slice_rows(i))) {
      QUIRE_RETURN_IF_ERROR(CheckRepeat(i, row));
      slice.is_repeat = true;
      first_token += FindRepeated(&slice);
    }
    first_token += slice.num_tokens;
    if (columns_.size() > 1) QUIRE_RETURN_IF_ERROR(ChangeSheets(plan, i));
    if (slice.num_tokens > 0) QUIRE_RETURN_IF_ERROR(ClaimWrites(i));
  }
  for (size_t i = 0; i < slices_.size(); ++i) {
    const bool is_first = slices_[i].is_repeat && slices_[i].last_token == static_cast<int>(token_ids_.size());
    if (slices_[i].num_tokens > 0 || is_first) QUIRE_RETURN_IF_ERROR(Append(i));
    slices_[i].row->SetComputed(slices_[i].end_position());
  }
  FindParents(plan);
  SetViews();
  return absl::OkStatus();
}

void StepBatch::Clear() {
  slices_.clear();
  forked_rows_.Clear();
  repeated_.clear();
  writers_.Clear();
  token_ids_.clear();
  positions_.clear();
  query_starts_.assign(1, 0);
  context_lens_.clear();
  for (Column& column : columns_) {
    column.slots.clear();
    column.table_starts.assign(1, 0);
    column.block_tables.clear();
  }
}

void StepBatch::FindParents(const v1::StepPlan& plan) {
  if (plan.fork_rows().empty()) return;
  sliced_rows_.Clear();
  for (int i = 0; i < plan.slice_rows_size(); ++i) sliced_rows_.Mark(plan.slice_rows(i), i);
  for (int i = 0; i < plan.fork_rows_size(); ++i) {
    if (!sliced_rows_.IsMarked(plan.fork_rows(i))) continue;
    BatchSlice& slice = slices_[sliced_rows_.Owner(plan.fork_rows(i))];
    if (slice.num_tokens > 0 || slice.is_early) continue;
    const BatchSlice& parent = slices_[sliced_rows_.Owner(plan.fork_parents(i))];
    slice.last_token = parent.last_token;
    slice.is_early = parent.is_early;
  }
}

absl::Status StepBatch::CheckSlice(const v1::StepPlan& plan, int index, const SequenceRow& row) const {
  const int64_t first = plan.slice_first_positions(index);
  const int64_t end = first + (IsEarly(plan, index, row) ? 0 : plan.slice_num_tokens(index));
  if (!row.is_started()) {
    return InvalidArgument("slice_rows[", index, "] is ", plan.slice_rows(index), ", which no sequence has taken");
  }
  if (end > row.num_tokens()) {
    return InvalidArgument("slice ", index, " ends at position ", end, ", its row has ", row.num_tokens(), " tokens");
  }
  if (end > limits_.max_context_tokens) {
    return InvalidArgument("slice ", index, " ends at position ", end, ", the model's context is ",
                           limits_.max_context_tokens);
  }
  // The parent's slice computes the tokens before a slice without tokens.
  if (plan.slice_num_tokens(index) > 0 && row.num_computed() >= 0 && first > row.num_computed()) {
    return InvalidArgument("slice_first_positions[", index, "] is ", first, ", its row is computed up to ",
                           row.num_computed());
  }
  if (row.pools_earlier_tokens() && (first != std::max(row.num_computed(), 0) || end == first)) {
    return InvalidArgument("slice ", index, " has the positions ", first, " to ", end,
                           ", its row pools all tokens and ", "is computed up to ", std::max(row.num_computed(), 0));
  }
  if (plan.slice_samples()[index] != 0 && end != row.num_tokens()) {
    return InvalidArgument("slice ", index, " samples after position ", end, ", its row has ", row.num_tokens(),
                           " tokens");
  }
  const int64_t table_length = static_cast<int64_t>(row.block_table().size());
  const int64_t first_changed = plan.slice_first_changed_blocks(index);
  const int64_t tail_length = plan.slice_tail_lengths(index);
  if (first_changed > table_length) {
    return InvalidArgument("slice_first_changed_blocks[", index, "] is ", first_changed, ", its row's table has ",
                           table_length, " entries");
  }
  const int64_t new_length = tail_length == 0 ? table_length : first_changed + tail_length;
  if (new_length > limits_.num_blocks) {
    return InvalidArgument("the block table of slice ", index, " has ", new_length, " entries, the pool has ",
                           limits_.num_blocks, " blocks");
  }
  if (new_length < limits_.NumBlocksFor(static_cast<int>(end))) {
    return InvalidArgument("the block table of slice ", index, " has ", new_length, " entries, ", end, " tokens need ",
                           limits_.NumBlocksFor(static_cast<int>(end)));
  }
  return absl::OkStatus();
}

absl::Status StepBatch::CheckRepeat(int index, const SequenceRow& row) const {
  if (row.num_pending() > 0) {
    return InvalidArgument("slice ", index, " repeats a draw, its row has ", row.num_pending(),
                           " tokens that are being drawn");
  }
  if (row.num_computed() >= 0 && row.num_computed() < row.num_tokens()) {
    return InvalidArgument("slice ", index, " repeats a draw after position ", row.num_tokens(),
                           ", its row is computed up to ", row.num_computed());
  }
  return absl::OkStatus();
}

absl::Status StepBatch::ChangeSheets(const v1::StepPlan& plan, int index) {
  const BatchSlice& slice = slices_[index];
  for (; next_change_ < plan.change_slices_size() && plan.change_slices(next_change_) == static_cast<uint32_t>(index);
       ++next_change_) {
    const int group = static_cast<int>(plan.change_groups(next_change_));
    const int blocks_per_sheet = limits_.groups[group].blocks_per_sheet;
    const size_t num_blocks = size_t{plan.change_num_sheets(next_change_)} * blocks_per_sheet;
    slice.row->ChangeSheets(group, blocks_per_sheet, static_cast<int>(plan.change_first_sheets(next_change_)),
                            absl::MakeConstSpan(next_change_block_, num_blocks));
    next_change_block_ += num_blocks;
  }
  const int end = limits_.NumBlocksFor(slice.end_position());
  for (int group = 1; group < static_cast<int>(limits_.groups.size()); ++group) {
    const int first = limits_.FirstSheet(group, slice.first_position);
    const SheetSpan sheets = slice.row->Sheets(group);
    if (first < end && (sheets.first > first || sheets.end < end)) {
      return InvalidArgument("slice ", index, " needs the sheets ", first, " to ", end - 1, " of group ", group,
                             ", its row has ", sheets.end - sheets.first, " from sheet ", sheets.first, " on");
    }
  }
  return absl::OkStatus();
}

int StepBatch::FindRepeated(BatchSlice* slice) {
  const int position = slice->first_position - 1;
  const int64_t block = slice->row->block_table()[position / limits_.block_size];
  const auto [known, is_new] =
      repeated_.try_emplace(block * limits_.block_size + position % limits_.block_size, slice->first_token);
  slice->last_token = known->second;
  return is_new ? 1 : 0;
}

absl::Status StepBatch::ClaimWrites(int index) {
  const BatchSlice& slice = slices_[index];
  const int end = limits_.NumBlocksFor(slice.end_position());
  for (const Column& column : columns_) {
    const SheetSpan sheets = slice.row->Sheets(column.group);
    for (int i = slice.first_position / limits_.block_size; i < end; ++i) {
      const uint32_t block = sheets.Block(i, column.part);
      if (!writers_.Mark(block, index)) {
        return InvalidArgument("block ", block, " is written by slice ", index, " and by slice ",
                               writers_.Owner(block));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status StepBatch::Append(int index) {
  const BatchSlice& slice = slices_[index];
  const absl::Span<const TokenId> tokens = slice.row->tokens();
  const int num_known = slice.row->num_tokens() - slice.row->num_pending();
  const int first_position = slice.is_repeat ? slice.first_position - 1 : slice.first_position;
  for (int position = first_position; position < slice.end_position(); ++position) {
    token_ids_.push_back(position < num_known ? tokens[position] : -1 - slice.row_index);
    positions_.push_back(position);
  }
  query_starts_.push_back(static_cast<int32_t>(token_ids_.size()));
  context_lens_.push_back(slice.end_position());
  for (Column& column : columns_) QUIRE_RETURN_IF_ERROR(AppendTable(index, &column));
  return absl::OkStatus();
}

absl::Status StepBatch::AppendTable(int index, Column* column) {
  const BatchSlice& slice = slices_[index];
  const SheetSpan sheets = slice.row->Sheets(column->group);
  const int block_size = limits_.block_size;
  for (size_t i = column->slots.size(); i < positions_.size(); ++i) {
    const int64_t block = sheets.Block(positions_[i] / block_size, column->part);
    column->slots.push_back(block * block_size + positions_[i] % block_size);
  }
  const int first = limits_.FirstSheet(column->group, slice.first_position);
  const int num_read = slice.is_repeat ? limits_.NumBlocksFor(slice.first_position) : slice.first_position / block_size;
  for (int i = first; i < num_read; ++i) {
    const uint32_t block = sheets.Block(i, column->part);
    if (writers_.IsMarked(block)) {
      return InvalidArgument("block ", block, " is read by slice ", index, " and written by slice ",
                             writers_.Owner(block));
    }
  }
  const int first_seen = limits_.groups[column->group].FirstNeeded(slice.first_position);
  const int begin = first_seen / kWindowAlignment * kWindowAlignment / block_size;
  const int end = limits_.NumBlocksFor(slice.end_position());
  std::vector<uint32_t>& tables = column->block_tables;
  column->table_starts.back() = static_cast<int32_t>(tables.size()) - begin;
  tables.insert(tables.end(), first - begin, sheets.Block(first, column->part));
  if (sheets.blocks_per_sheet == 1) {
    tables.insert(tables.end(), sheets.blocks + (first - sheets.first), sheets.blocks + (end - sheets.first));
  } else {
    for (int i = first; i < end; ++i) tables.push_back(sheets.Block(i, column->part));
  }
  column->table_starts.push_back(static_cast<int32_t>(tables.size()));
  return absl::OkStatus();
}

void StepBatch::SetViews() {
  for (size_t i = 0; i < columns_.size(); ++i) {
    views_[i] = {.num_tokens = static_cast<int>(token_ids_.size()),
                 .num_sequences = static_cast<int>(context_lens_.size()),
                 .token_ids = token_ids_.data(),
                 .positions = positions_.data(),
                 .slots = columns_[i].slots.data(),
                 .query_starts = query_starts_.data(),
                 .context_lens = context_lens_.data(),
                 .table_starts = columns_[i].table_starts.data(),
                 .block_tables = columns_[i].block_tables.data()};
  }
}

}  // namespace quire
