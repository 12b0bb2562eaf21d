#include "worker/sequence_row.h"

namespace quire {

void SequenceRow::Start(const v1::SequenceStart& start, int vocab_size) {
  sequence_ = SequenceId{start.sequence()};
  prompt_length_ = static_cast<int>(start.prompt_length());
  num_computed_ = -1;
  num_pending_ = 0;
  tokens_.assign(start.token_ids().begin(), start.token_ids().end());
  block_table_.clear();
  sampling_.Start(start, vocab_size);
}

void SequenceRow::Fork(const SequenceRow& parent, SequenceId sequence, uint32_t sample_index) {
  *this = parent;
  sequence_ = sequence;
  sampling_.SetSampleIndex(sample_index);
}

void SequenceRow::Append(TokenId token) {
  tokens_.push_back(token);
  sampling_.Append(token);
}

void SequenceRow::AppendPending() {
  tokens_.push_back(0);
  ++num_pending_;
}

void SequenceRow::Resolve(TokenId token) {
  tokens_[tokens_.size() - num_pending_] = token;
  --num_pending_;
  sampling_.Append(token);
}

void SequenceRow::ChangeTable(int first_changed, absl::Span<const uint32_t> tail) {
  if (tail.empty()) return;
  block_table_.resize(first_changed);
  block_table_.insert(block_table_.end(), tail.begin(), tail.end());
}

void SequenceRow::SetComputed(int num_tokens) {
  num_computed_ = num_tokens;
}

}  // namespace quire
