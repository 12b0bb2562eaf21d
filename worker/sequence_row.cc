// SPDX-License-Identifier: Apache-2.0

#include "worker/sequence_row.h"

#include <algorithm>

namespace quire {

void SequenceRow::Start(const v1::SequenceStart& start, int vocab_size) {
  sequence_ = SequenceId{start.sequence()};
  forked_from_.reset();
  sample_index_ = start.sample_index();
  prompt_length_ = static_cast<int>(start.prompt_length());
  num_computed_ = -1;
  last_slice_us_.reset();
  num_pending_ = 0;
  lacks_draw_ = false;
  failure_.reset();
  tokens_.assign(start.token_ids().begin(), start.token_ids().end());
  block_table_.clear();
  sheet_tables_.clear();
  swapped_out_.clear();
  cache_root_ = start.has_cache_root() ? std::make_shared<const std::string>(start.cache_root()) : nullptr;
  SetRecord(start.record());
  scores_ = start.scores();
  prompt_scores_ = std::make_shared<v1::ScoreColumns>(start.prompt_scores());
  pooling_ = start.sampling().pooling();
  pooled_ = pooling_ == v1::POOLING_KIND_UNSPECIFIED ? nullptr : std::make_shared<PooledStates>();
  sampling_.Start(start, vocab_size);
}

void SequenceRow::Fork(const SequenceRow& parent, SequenceId sequence, uint32_t sample_index) {
  *this = parent;
  sequence_ = sequence;
  forked_from_ = parent.sequence();
  sample_index_ = sample_index;
  sampling_.SetSampleIndex(sample_index);
}

void SequenceRow::Append(TokenId token) {
  tokens_.push_back(token);
  lacks_draw_ = false;
  sampling_.Append(token);
}

void SequenceRow::AppendPending() {
  tokens_.push_back(0);
  lacks_draw_ = false;
  ++num_pending_;
}

void SequenceRow::Resolve(TokenId token) {
  tokens_[tokens_.size() - num_pending_] = token;
  --num_pending_;
  if (failure_ == nullptr) sampling_.Append(token);
}

void SequenceRow::Fail(RowFailure failure) {
  if (failure_ == nullptr) failure_ = std::make_shared<const RowFailure>(std::move(failure));
}

void SequenceRow::ChangeTable(int first_changed, absl::Span<const uint32_t> tail) {
  if (tail.empty()) return;
  block_table_.resize(first_changed);
  block_table_.insert(block_table_.end(), tail.begin(), tail.end());
  while (!swapped_out_.empty() && swapped_out_.back().first >= first_changed) swapped_out_.pop_back();
}

void SequenceRow::ChangeSheets(int group, int blocks_per_sheet, int first_sheet, absl::Span<const uint32_t> blocks) {
  sheet_tables_.resize(std::max<size_t>(sheet_tables_.size(), group));
  SheetTable& table = sheet_tables_[group - 1];
  table.blocks_per_sheet = blocks_per_sheet;
  const int64_t num_kept = int64_t{first_sheet - table.first} * blocks_per_sheet;
  if (num_kept < 0 || num_kept > static_cast<int64_t>(table.blocks.size())) {
    table.first = first_sheet;
    table.blocks.clear();
  } else {
    table.blocks.resize(num_kept);
  }
  table.blocks.insert(table.blocks.end(), blocks.begin(), blocks.end());
}

SheetSpan SequenceRow::Sheets(int group) const {
  if (group == 0) return {block_table_.data(), 0, static_cast<int>(block_table_.size()), 1};
  if (static_cast<size_t>(group) > sheet_tables_.size()) return {nullptr, 0, 0, 1};
  const SheetTable& table = sheet_tables_[group - 1];
  const int num_sheets = static_cast<int>(table.blocks.size()) / table.blocks_per_sheet;
  return {table.blocks.data(), table.first, table.first + num_sheets, table.blocks_per_sheet};
}

void SequenceRow::SetSwappedOut(int index, uint32_t host_block) {
  const auto place = std::lower_bound(swapped_out_.begin(), swapped_out_.end(), std::make_pair(index, uint32_t{0}));
  if (place != swapped_out_.end() && place->first == index) {
    place->second = host_block;
  } else {
    swapped_out_.insert(place, {index, host_block});
  }
}

void SequenceRow::SetRecord(std::string record) {
  record_ = std::make_shared<const std::string>(std::move(record));
}

void SequenceRow::SetComputed(int num_tokens) {
  num_computed_ = num_tokens;
}

}  // namespace quire
