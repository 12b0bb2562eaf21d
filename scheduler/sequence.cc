#include "scheduler/sequence.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace quire {

Sequence::Sequence(SequenceId id, int sample_index, const std::vector<TokenId>& prompt, int max_tokens)
    : id_(id),
      sample_index_(sample_index),
      prompt_length_(static_cast<int>(prompt.size())),
      max_length_(prompt_length_ + max_tokens),
      tokens_(prompt) {}

void Sequence::EnterRow(RowId row) {
  // A sample in flight would be missing from the tokens that the new row starts with.
  QUIRE_CHECK_EQ(num_slices_in_flight_, 0) << id_;
  row_ = row;
}

void Sequence::LeaveRow() {
  num_computed_ = 0;
  sent_table_.clear();
}

void Sequence::OnSlicePlanned(int num_tokens) {
  QUIRE_CHECK_GE(num_tokens, 1) << id_;
  QUIRE_CHECK_LE(num_tokens, num_uncomputed_tokens()) << id_;
  const bool samples = num_tokens == num_uncomputed_tokens();
  num_computed_ += num_tokens;
  max_computed_ = std::max(max_computed_, num_computed_);
  ++num_slices_in_flight_;
  if (samples) ++num_samples_in_flight_;
}

void Sequence::OnSliceCommitted(bool sampled) {
  --num_slices_in_flight_;
  if (sampled) --num_samples_in_flight_;
  QUIRE_CHECK_GE(num_slices_in_flight_, 0) << id_;
  QUIRE_CHECK_GE(num_samples_in_flight_, 0) << id_;
}

void Sequence::OnSlicesAbandoned() {
  num_slices_in_flight_ = 0;
  num_samples_in_flight_ = 0;
}

void Sequence::FillTableChange(absl::Span<const BlockId> table, int block_size, SequenceSlice* slice) {
  size_t first = std::min<size_t>(slice->first_position / block_size, sent_table_.size());
  while (first < sent_table_.size() && first < table.size() && sent_table_[first] == table[first]) ++first;
  slice->first_changed_block = static_cast<int>(first);
  slice->block_tail.assign(table.begin() + first, table.end());
  sent_table_.resize(first);
  sent_table_.insert(sent_table_.end(), slice->block_tail.begin(), slice->block_tail.end());
}

int Sequence::NumRecomputed(int num_tokens) const {
  return std::max(0, std::min(num_computed_ + num_tokens, max_computed_) - num_computed_);
}

}  // namespace quire
