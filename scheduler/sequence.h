#ifndef QUIRE_SCHEDULER_SEQUENCE_H_
#define QUIRE_SCHEDULER_SEQUENCE_H_

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "base/pooled.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// One token stream of a request, and how far the plans made so far bring it. Plans run ahead of results: a sequence of
// 5 known tokens with one sample in flight has num_tokens() 6, and its next slice may already cover the sixth, which
// only the worker knows.
class Sequence : public Pooled {
 public:
  // `max_tokens` counts generated tokens.
  Sequence(SequenceId id, int sample_index, const std::vector<TokenId>& prompt, int max_tokens);

  // The same sequence under another id, without a row and with nothing in flight. If a row is forked for it from this
  // one's, that holds the same block table.
  Sequence Fork(SequenceId id, int sample_index) const;

  // Runs in `row` from here on. Its first `num_computed` tokens are computed already.
  void EnterRow(RowId row, int num_computed);

  // Runs in `row`, which the next plan makes a copy of `parent`.
  void ForkRow(RowId row, RowId parent);

  // Its row is taken away. Slices in flight still commit. Its blocks are gone too unless it `keeps_blocks`: then its
  // computed tokens stay computed.
  void LeaveRow(bool keeps_blocks);

  // A plan includes the next `num_tokens` tokens. REQUIRES: 0 <= num_tokens <= num_uncomputed_tokens().
  void OnSlicePlanned(int num_tokens);

  // The oldest slice in flight is done. A sampled token follows through Append.
  void OnSliceCommitted(bool sampled);

  // No slice in flight will be committed, and nothing is computed.
  void OnSlicesAbandoned();

  void Append(TokenId token) { tokens_.push_back(token); }

  // The block manager has made room and slots writable for the first `num_tokens` tokens, whole blocks of them. They
  // stay so until the last block is shared by a fork.
  void OnAllocated(int num_tokens, int block_size);
  void OnShared() { num_writable_ = 0; }
  bool IsWritable(int num_tokens) const { return num_tokens <= num_writable_; }

  // The change from the block table that the worker's row holds to `table`, looking from the block of
  // `slice->first_position` on: earlier ones are full and never change unless OnTableChanged says so. Remembers `table`
  // as sent. The table is looked at only if it may have changed at all.
  bool MayHaveChangedTable() const { return may_have_changed_table_; }
  void FillTableChange(absl::Span<const BlockId> table, int block_size, SequenceSlice* slice);
  int num_sent_blocks() const { return static_cast<int>(sent_table_.size()); }
  void OnTableChanged(int first_changed_block);
  // Below this index the worker's row has what the block manager has, once the plans made so far have run.
  int first_changed_block() const { return first_changed_block_; }
  // The next slice tells the worker the whole table.
  void ForgetSentTable();

  // Whether whole blocks have been computed and not been published since the row was entered; if so they count as
  // published from here on.
  bool TakeUnpublished(int block_size);

  // Begins to fetch what planning reads.
  void Prefetch() const {
    constexpr int kLineBytes = 64;
    const char* const begin = reinterpret_cast<const char*>(this);
    for (size_t at = 0; at < sizeof(*this); at += kLineBytes) __builtin_prefetch(begin + at);
  }

  // And where the next token will be.
  void PrefetchEnd() const { __builtin_prefetch(tokens_.data() + tokens_.size()); }

  SequenceId id() const { return id_; }
  int sample_index() const { return sample_index_; }
  RowId row() const { return row_; }  // REQUIRES: between EnterRow and LeaveRow.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  int prompt_length() const { return prompt_length_; }
  int num_known_tokens() const { return static_cast<int>(tokens_.size()); }
  int num_generated_tokens() const { return num_known_tokens() - prompt_length_; }

  // Known tokens and samples in flight.
  int num_tokens() const { return num_known_tokens() + num_samples_in_flight_; }

  // Tokens whose K and V are stored once the plans made so far have run.
  int num_computed_tokens() const { return num_computed_; }

  // Tokens that the next slices have to cover. 0 once the last token is in flight: nobody reads its K and V.
  int num_uncomputed_tokens() const { return num_tokens() >= max_length_ ? 0 : num_tokens() - num_computed_; }

  // Computed tokens that others may share. Of a beam only the prompt's: most beams come to nothing, and would drive
  // better things out of the prefix cache.
  int num_shareable_tokens() const { return std::min(num_computed_known_tokens(), max_shareable_); }
  void ShareThePromptOnly() { max_shareable_ = prompt_length_; }

  // Of a slice of `num_tokens` planned now: tokens that an earlier plan had computed before.
  int NumRecomputed(int num_tokens) const;

  bool has_slices_in_flight() const { return num_slices_in_flight_ > 0; }
  bool has_samples_in_flight() const { return num_samples_in_flight_ > 0; }

  // Another sequence of the group whose blocks this one shares: it must compute them first. Its slices wait until then.
  struct Wait {
    SequenceId sequence;
    int num_tokens;
  };
  std::optional<Wait> wait;

  // What the next plan must tell the row of a beam: to become a copy of this one, and to take the last token, which the
  // worker has not drawn.
  std::optional<RowId> pending_fork;
  bool has_pending_append = false;

  // Of a beam: candidates for its next token, until those of all beams are there.
  std::optional<std::vector<TokenLogprob>> candidates;

 private:
  int num_computed_known_tokens() const { return std::min(num_computed_, num_known_tokens()); }

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
  int max_shareable_ = std::numeric_limits<int>::max();
  int num_published_blocks_ = 0;
  int num_writable_ = 0;  // Tokens.
  bool may_have_changed_table_ = true;
  std::vector<BlockId> sent_table_;  // As the worker's row holds it.
  int first_changed_block_;          // Of sent_table_, see OnTableChanged.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SEQUENCE_H_
