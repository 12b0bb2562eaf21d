// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_SEQUENCE_H_
#define QUIRE_SCHEDULER_SEQUENCE_H_

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/cache_groups.h"
#include "base/ids.h"
#include "base/pooled.h"
#include "scheduler/block_manager.h"
#include "scheduler/numerics_change.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// One token stream of a request, and how much of it the plans made so far compute. Plans run ahead of results: a
// sequence of 5 known tokens with one sample in flight has num_tokens() 6. Its next slice may already cover the sixth
// token, which only the worker knows. Owned by the step-loop thread.
class Sequence : public Pooled {
 public:
  // `max_tokens` counts generated tokens.
  Sequence(SequenceId id, int sample_index, const std::vector<TokenId>& prompt, int max_tokens);

  // Returns a copy under another id, without a row and with nothing in flight. When the worker forks a row for the copy
  // from the row of this sequence, both rows hold the same block table.
  Sequence Fork(SequenceId id, int sample_index) const;

  // The sequence runs in `row` from here on. Its first `num_computed` tokens are already computed.
  void EnterRow(RowId row, int num_computed);

  // All known tokens are computed, and the next slice draws the token behind them.
  void DrawAgain() { draws_again_ = true; }

  // The sequence runs in `row` since an earlier session. The row has these tokens, and the K and V of the first
  // `num_stored` are stored. An earlier scheduler has computed `num_computed`. The next slice sends the whole table.
  void Restore(RowId row, std::vector<TokenId> tokens, int num_stored, int num_computed);

  // The sequence runs in `row` from here on. The next plan makes that row a copy of row `parent`.
  void ForkRow(RowId row, RowId parent);

  // The row is taken from the sequence. Slices in flight are still committed. With `keeps_blocks` the computed tokens
  // stay computed, otherwise the blocks are gone as well.
  void LeaveRow(bool keeps_blocks);

  // A plan computes the next `num_tokens` tokens. REQUIRES: 0 <= num_tokens <= num_uncomputed_tokens().
  void OnSlicePlanned(int num_tokens);

  // The oldest slice in flight is done; it ended at `position`. A sampled token is added by a call of Append. Returns
  // whether a worker got farther with the sequence than ever before.
  bool OnSliceCommitted(int position, bool sampled);

  // The oldest slice in flight is done, as OnSliceCommitted was told, but the worker has drawn nothing. Once no slice
  // is in flight any more, the next one repeats the draw, unless the tokens must be computed again anyway.
  void OnPostponed();

  // No slice in flight will be committed, and no token is computed any more.
  void OnSlicesAbandoned();

  // The worker was lost while a slice that ends at `position` was in flight.
  void OnLost(int position);

  // The tokens after the known ones come from workers of another generation. `has_begun`: another sample of the
  // request has drawn a token.
  void ChangeNumerics(bool has_begun);
  // Sets the change that the sequence went through in an earlier scheduler.
  void RestoreNumericsChange(std::optional<NumericsChange> change) { numerics_change_ = change; }
  const std::optional<NumericsChange>& numerics_change() const { return numerics_change_; }

  // The sequence goes to another scheduler, which calls it `id`. REQUIRES: it has no row, and nothing of it is in
  // flight.
  void Rename(SequenceId id) { id_ = id; }

  void Append(TokenId token) { tokens_.push_back(token); }

  // The block manager has made the slots of the whole blocks of the first `num_tokens` tokens writable. They stay
  // writable until a fork shares the last block.
  void OnAllocated(int num_tokens, int block_size);
  void OnShared() { num_writable_ = 0; }
  bool IsWritable(int num_tokens) const { return num_tokens <= num_writable_; }

  // FillTableChange stores in `slice` how the block table that the worker's row holds differs from `table`, and
  // remembers `table` as sent. It looks at the blocks from the block of `slice->first_position` on: earlier blocks are
  // full and never change, unless OnTableChanged was called for them. When MayHaveChangedTable() is false, there is no
  // difference and no need for the call.
  bool MayHaveChangedTable() const { return may_have_changed_table_; }
  void FillTableChange(absl::Span<const BlockId> table, int block_size, SequenceSlice* slice);
  // The same for the sheets of a group behind group 0 that the sequence has now. Those before `first_sheet` are as they
  // were. Appends the change, if there is one, to `changes`; it belongs to slice `slice`. REQUIRES: it is called for
  // all of these groups whenever FillTableChange is.
  void AddSheetChange(int slice, int group, int first_sheet, const CacheGroups& groups, const SheetsView& sheets,
                      std::vector<SheetChange>* changes);
  int num_sent_blocks() const { return static_cast<int>(sent_table_.size()); }
  void OnTableChanged(int first_changed_block);
  // Entries below this index are the same in the worker's row and in the block manager, once the plans made so far have
  // run.
  int first_changed_block() const { return first_changed_block_; }
  // The next slice sends the whole table to the worker.
  void ForgetSentTable();

  // Returns whether whole blocks were computed since the sequence entered its row and are not published yet. If so,
  // they count as published from here on.
  bool TakeUnpublished(int block_size);

  // A token was drawn behind the first `num_tokens` tokens. Returns whether they have more whole blocks than at the
  // call before.
  bool TakeUnproved(int num_tokens, int block_size);

  // Prefetches what planning reads.
  void Prefetch() const {
    constexpr int kLineBytes = 64;
    const char* const begin = reinterpret_cast<const char*>(this);
    for (size_t at = 0; at < sizeof(*this); at += kLineBytes) __builtin_prefetch(begin + at);
  }

  // Prefetches the place of the next token.
  void PrefetchEnd() const { __builtin_prefetch(tokens_.data() + tokens_.size()); }

  SequenceId id() const { return id_; }
  int sample_index() const { return sample_index_; }
  RowId row() const { return row_; }  // REQUIRES: the sequence is in a row.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  std::vector<TokenId> TakeTokens() && { return std::move(tokens_); }
  int prompt_length() const { return prompt_length_; }
  int num_known_tokens() const { return static_cast<int>(tokens_.size()); }
  int num_generated_tokens() const { return num_known_tokens() - prompt_length_; }

  // Known tokens and samples in flight.
  int num_tokens() const { return num_known_tokens() + num_samples_in_flight_; }

  // Tokens whose K and V are stored once the plans made so far have run.
  int num_computed_tokens() const { return num_computed_; }

  // Tokens that the next slices must compute. 0 once the last token is in flight, because nobody reads its K and V. 1
  // if the next slice repeats a draw: the worker computes the last token once more, and stores nothing.
  int num_uncomputed_tokens() const {
    return num_tokens() >= max_length_ ? 0 : num_tokens() - num_computed_ + (draws_again_ ? 1 : 0);
  }
  // Returns whether the next slice repeats a draw that was postponed. It has no tokens then.
  bool draws_again() const { return draws_again_; }

  // Computed tokens that other requests may share. A beam shares only prompt tokens: most beams are dropped, and their
  // blocks would drive more useful ones out of the prefix cache.
  int num_shareable_tokens() const { return std::min(num_computed_known_tokens(), max_shareable_); }
  void ShareThePromptOnly() { max_shareable_ = prompt_length_; }

  // Returns how many tokens of a slice of `num_tokens`, planned now, an earlier plan had computed already.
  int NumRecomputed(int num_tokens) const;

  // Returns the farthest end of an answered slice. A fork begins with the end of its parent.
  int reached() const { return reached_; }
  // Returns whether a worker was lost while it computed tokens of the sequence, or of the parent before the fork, that
  // no worker has computed since.
  bool is_behind_loss() const { return lost_at_ > 0; }

  bool has_slices_in_flight() const { return num_slices_in_flight_ > 0; }
  int num_slices_in_flight() const { return num_slices_in_flight_; }
  // The first `num_tokens` tokens were computed by another scheduler.
  void SetComputedBefore(int num_tokens) { max_computed_ = std::max(max_computed_, num_tokens); }

  bool has_samples_in_flight() const { return num_samples_in_flight_ > 0; }

  // Set when this sequence shares blocks that another sequence of the group has yet to compute. This sequence gets no
  // slices until the other one has computed `num_tokens` tokens.
  struct Wait {
    SequenceId sequence;
    int num_tokens;
  };
  std::optional<Wait> wait;

  // The next plan must tell the row of a beam this: to become a copy of the row pending_fork, and to append the last
  // token, which the worker has not drawn.
  std::optional<RowId> pending_fork;
  bool has_pending_append = false;

  // The candidates for the next token of a beam, kept until all beams have theirs.
  std::optional<std::vector<TokenLogprob>> candidates;

  // The scores of all generated tokens, if the group keeps scores. They are incomplete when the sequence began with
  // generated tokens whose scores are not known.
  std::vector<ScoredToken> scores;

 private:
  int num_computed_known_tokens() const { return std::min(num_computed_, num_known_tokens()); }

  SequenceId id_;
  int sample_index_;
  int prompt_length_;
  int max_length_;  // The length of the prompt plus max_tokens.
  std::vector<TokenId> tokens_;
  RowId row_{0};
  int num_computed_ = 0;
  int max_computed_ = 0;  // The largest value that num_computed_ ever had.
  int num_slices_in_flight_ = 0;
  int num_samples_in_flight_ = 0;
  int reached_ = 0;
  int lost_at_ = 0;  // The farthest end of a slice that was in flight at a loss and is to be passed; 0: there is none.
  int max_shareable_ = std::numeric_limits<int>::max();
  int num_published_blocks_ = 0;
  int num_proved_blocks_ = 0;
  int num_writable_ = 0;  // Number of first tokens whose slots are writable.
  bool may_have_changed_table_ = true;
  bool draws_again_ = false;
  std::vector<BlockId> sent_table_;  // The table that the worker's row holds.
  struct SentSheets {
    int first = 0;
    std::vector<BlockId> blocks;
  };
  std::vector<SentSheets> sent_sheets_;  // The same of groups 1, 2, ..., as far as they are live.
  int first_changed_block_;              // An index into sent_table_, see OnTableChanged.
  std::optional<NumericsChange> numerics_change_;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SEQUENCE_H_
