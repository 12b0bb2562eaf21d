#ifndef QUIRE_SCHEDULER_SEQUENCE_H_
#define QUIRE_SCHEDULER_SEQUENCE_H_

#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/step_plan.h"

namespace quire {

// One token stream of a request, and how far the plans made so far bring it. Plans run ahead of results: a sequence of
// 5 known tokens with one sample in flight has num_tokens() 6, and its next slice may already cover the sixth, which
// only the worker knows.
class Sequence {
 public:
  // `max_tokens` counts generated tokens.
  Sequence(SequenceId id, int sample_index, const std::vector<TokenId>& prompt, int max_tokens);

  // Runs in `row` from here on, with nothing computed.
  void EnterRow(RowId row);

  // Its row and its blocks are taken away: everything is to be computed again. Slices in flight still commit.
  void LeaveRow();

  // A plan includes the next `num_tokens` tokens. REQUIRES: 1 <= num_tokens <= num_uncomputed_tokens().
  void OnSlicePlanned(int num_tokens);

  // The oldest slice in flight is done. A sampled token follows through Append.
  void OnSliceCommitted(bool sampled);

  // No slice in flight will be committed.
  void OnSlicesAbandoned();

  void Append(TokenId token) { tokens_.push_back(token); }

  // The change from the block table that the worker's row holds to `table`, looking from the block of
  // `slice->first_position` on: earlier ones are full and never change. Remembers `table` as sent.
  void FillTableChange(absl::Span<const BlockId> table, int block_size, SequenceSlice* slice);

  SequenceId id() const { return id_; }
  int sample_index() const { return sample_index_; }
  RowId row() const { return row_; }  // REQUIRES: between EnterRow and LeaveRow.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  int num_known_tokens() const { return static_cast<int>(tokens_.size()); }
  int num_generated_tokens() const { return num_known_tokens() - prompt_length_; }

  // Known tokens and samples in flight.
  int num_tokens() const { return num_known_tokens() + num_samples_in_flight_; }

  // Tokens whose K and V are stored once the plans made so far have run.
  int num_computed_tokens() const { return num_computed_; }

  // Tokens that the next slices have to cover. 0 once the last token is in flight: nobody reads its K and V.
  int num_uncomputed_tokens() const { return num_tokens() >= max_length_ ? 0 : num_tokens() - num_computed_; }

  // Of a slice of `num_tokens` planned now: tokens that an earlier plan had computed before.
  int NumRecomputed(int num_tokens) const;

  bool has_slices_in_flight() const { return num_slices_in_flight_ > 0; }

 private:
  SequenceId id_;
  int sample_index_;
  int prompt_length_;
  int max_length_;  // Prompt and max_tokens.
  std::vector<TokenId> tokens_;
  RowId row_{0};
  int num_computed_ = 0;
  int max_computed_ = 0;  // Largest num_computed_ ever.
  int num_slices_in_flight_ = 0;
  int num_samples_in_flight_ = 0;
  std::vector<BlockId> sent_table_;  // As the worker's row holds it.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SEQUENCE_H_
