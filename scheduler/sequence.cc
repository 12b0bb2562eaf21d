// SPDX-License-Identifier: Apache-2.0

#include "scheduler/sequence.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/num_blocks.h"

namespace quire {
namespace {

constexpr int kNoBlock = std::numeric_limits<int>::max();

}  // namespace

Sequence::Sequence(SequenceId id, int sample_index, const std::vector<TokenId>& prompt, int max_tokens)
    : id_(id),
      sample_index_(sample_index),
      prompt_length_(static_cast<int>(prompt.size())),
      max_length_(prompt_length_ + max_tokens),
      tokens_(prompt),
      first_changed_block_(kNoBlock) {}

Sequence Sequence::Fork(SequenceId id, int sample_index) const {
  Sequence child = *this;
  child.id_ = id;
  child.sample_index_ = sample_index;
  child.num_slices_in_flight_ = 0;
  child.num_samples_in_flight_ = 0;
  child.pending_fork.reset();
  child.has_pending_append = false;
  child.draws_again_ = false;
  child.num_writable_ = 0;
  child.may_have_changed_table_ = true;
  child.candidates.reset();
  return child;
}

void Sequence::ChangeNumerics(bool has_begun) {
  const int position = num_known_tokens();
  if (!numerics_change_.has_value()) numerics_change_ = {.first = position, .last = position};
  numerics_change_->last = std::max(position, prompt_length_ + (has_begun ? 1 : 0));
}

void Sequence::EnterRow(RowId row, int num_computed) {
  // A sample in flight would be missing from the tokens that the new row starts with.
  QUIRE_CHECK_EQ(num_slices_in_flight_, 0) << id_;
  row_ = row;
  num_computed_ = num_computed;
  max_computed_ = std::max(max_computed_, num_computed);
  // Candidates that came while the sequence waited come again, unless all known tokens are still computed.
  if (num_computed < num_known_tokens()) {
    candidates.reset();
    draws_again_ = false;
  }
}

void Sequence::Restore(RowId row, std::vector<TokenId> tokens, int num_stored, int num_computed) {
  QUIRE_CHECK_LT(num_stored, static_cast<int>(tokens.size())) << id_;
  tokens_ = std::move(tokens);
  row_ = row;
  num_computed_ = num_stored;
  reached_ = num_stored;
  SetComputedBefore(num_computed);
}

void Sequence::ForkRow(RowId row, RowId parent) {
  row_ = row;
  pending_fork = parent;
}

void Sequence::LeaveRow(bool keeps_blocks) {
  sent_table_.clear();
  sent_sheets_.clear();
  first_changed_block_ = kNoBlock;
  may_have_changed_table_ = true;
  num_writable_ = 0;
  num_published_blocks_ = 0;
  num_proved_blocks_ = 0;
  pending_fork.reset();
  has_pending_append = false;
  if (keeps_blocks) return;
  num_computed_ = 0;
  draws_again_ = false;
  wait.reset();
  candidates.reset();
}

void Sequence::OnSlicePlanned(int num_tokens) {
  QUIRE_CHECK_GE(num_tokens, 0) << id_;
  QUIRE_CHECK_LE(num_tokens, num_uncomputed_tokens()) << id_;
  const bool samples = num_tokens == num_uncomputed_tokens();
  if (!std::exchange(draws_again_, false)) num_computed_ += num_tokens;
  max_computed_ = std::max(max_computed_, num_computed_);
  ++num_slices_in_flight_;
  if (samples) ++num_samples_in_flight_;
}

bool Sequence::OnSliceCommitted(int position, bool sampled) {
  --num_slices_in_flight_;
  if (sampled) --num_samples_in_flight_;
  QUIRE_CHECK_GE(num_slices_in_flight_, 0) << id_;
  QUIRE_CHECK_GE(num_samples_in_flight_, 0) << id_;
  if (position >= lost_at_) lost_at_ = 0;
  if (position <= reached_) return false;
  reached_ = position;
  return true;
}

// A slice that counts on the token may have been planned already.
void Sequence::OnPostponed() {
  if (num_slices_in_flight_ > 0) return;
  num_computed_ = std::min(num_computed_, num_known_tokens());
  max_computed_ = std::min(max_computed_, num_known_tokens());
  draws_again_ = num_computed_ == num_known_tokens();
}

void Sequence::OnLost(int position) {
  lost_at_ = std::max(lost_at_, position);
}

void Sequence::OnSlicesAbandoned() {
  num_slices_in_flight_ = 0;
  num_samples_in_flight_ = 0;
  num_computed_ = 0;
  draws_again_ = false;
  wait.reset();
  candidates.reset();
}

void Sequence::OnAllocated(int num_tokens, int block_size) {
  num_writable_ = NumBlocksFor(num_tokens, block_size) * block_size;
  may_have_changed_table_ = true;
}

void Sequence::FillTableChange(absl::Span<const BlockId> table, int block_size, SequenceSlice* slice) {
  size_t first =
      std::min({slice->first_position / block_size, first_changed_block_, static_cast<int>(sent_table_.size())});
  first_changed_block_ = kNoBlock;
  may_have_changed_table_ = false;
  while (first < sent_table_.size() && first < table.size() && sent_table_[first] == table[first]) ++first;
  slice->first_changed_block = static_cast<int>(first);
  slice->block_tail.assign(table.begin() + first, table.end());
  sent_table_.resize(first);
  sent_table_.insert(sent_table_.end(), slice->block_tail.begin(), slice->block_tail.end());
}

void Sequence::AddSheetChange(int slice, int group, int first_sheet, const CacheGroups& groups,
                              const SheetsView& sheets, std::vector<SheetChange>* changes) {
  const size_t width = groups.group(group).blocks_per_sheet;
  const int end = sheets.first + static_cast<int>(sheets.blocks.size() / width);
  sent_sheets_.resize(groups.size() - 1);
  SentSheets& sent = sent_sheets_[group - 1];
  const int sent_end = sent.first + static_cast<int>(sent.blocks.size() / width);
  if (sent.first > sheets.first || sent_end < sheets.first) sent = {sheets.first, {}};
  sent.blocks.erase(sent.blocks.begin(), sent.blocks.begin() + (sheets.first - sent.first) * width);
  sent.first = sheets.first;
  const int unchanged = std::max(first_sheet - sheets.first, 0);
  size_t same = std::min(unchanged * width, sent.blocks.size());
  while (same < sent.blocks.size() && same < sheets.blocks.size() && sent.blocks[same] == sheets.blocks[same]) ++same;
  if (same == sheets.blocks.size()) return;
  const size_t kept = same / width;
  const int first = sheets.first + static_cast<int>(kept);
  changes->push_back({slice, group, first, end - first, {sheets.blocks.begin() + kept * width, sheets.blocks.end()}});
  sent.blocks.assign(sheets.blocks.begin(), sheets.blocks.end());
}

void Sequence::OnTableChanged(int first_changed_block) {
  first_changed_block_ = std::min(first_changed_block_, first_changed_block);
  may_have_changed_table_ = true;
}

void Sequence::ForgetSentTable() {
  sent_table_.clear();
  sent_sheets_.clear();
  OnTableChanged(0);
}

bool Sequence::TakeUnpublished(int block_size) {
  const int num_blocks = num_computed_known_tokens() / block_size;
  if (num_blocks <= num_published_blocks_) return false;
  num_published_blocks_ = num_blocks;
  return true;
}

bool Sequence::TakeUnproved(int num_tokens, int block_size) {
  const int num_blocks = num_tokens / block_size;
  if (num_blocks <= num_proved_blocks_) return false;
  num_proved_blocks_ = num_blocks;
  return true;
}

int Sequence::NumRecomputed(int num_tokens) const {
  return std::max(0, std::min(num_computed_ + num_tokens, max_computed_) - num_computed_);
}

}  // namespace quire
