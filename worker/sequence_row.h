// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_SEQUENCE_ROW_H_
#define QUIRE_WORKER_SEQUENCE_ROW_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "quire/v1/worker.pb.h"
#include "worker/sampling_state.h"

namespace quire {

// Why a sequence cannot continue.
struct RowFailure {
  v1::SequenceFailureReason reason;
  std::string message;
};

// The hidden states of a sequence that were added so far, in the order of their tokens. [hidden_size]
struct PooledStates {
  std::vector<float> sum;
  int num_states = 0;
};

// The sheets that a row has of one cache group: the blocks of [first, end), sheet after sheet.
struct SheetSpan {
  const uint32_t* blocks;
  int first;
  int end;
  int blocks_per_sheet;

  // REQUIRES: first <= sheet < end.
  uint32_t Block(int sheet, int part) const {
    return blocks[static_cast<size_t>(sheet - first) * blocks_per_sheet + part];
  }
};

// The worker's state of a running sequence: tokens, block table and sampling state. It lasts until a plan ends the
// sequence, another sequence takes the row, or the worker drops the rows of a session. Owned by the executor thread.
class SequenceRow {
 public:
  // Replaces the state of the row. REQUIRES: CheckSequenceStart accepted `start`.
  void Start(const v1::SequenceStart& start, int vocab_size);

  // Replaces the state of the row by a copy of the state of `parent`, which is another row. Only the sequence, the
  // sample index and forked_from() differ. REQUIRES: parent.is_started().
  void Fork(const SequenceRow& parent, SequenceId sequence, uint32_t sample_index);

  // Appends a token that the manager has chosen. REQUIRES: no token is pending.
  void Append(TokenId token);
  // Appends a token that is being drawn.
  void AppendPending();
  // Sets the value of the oldest token that is being drawn. It does not count if the sequence has failed.
  void Resolve(TokenId token);
  // The draw of the next token is put off. AppendPending makes up for it, and so does Append.
  void PostponeDraw() { lacks_draw_ = true; }
  bool lacks_draw() const { return lacks_draw_; }
  // Replaces the entries of the block table from `first_changed` on by `tail`. An empty tail changes nothing. REQUIRES:
  // first_changed is at most the length of the table.
  void ChangeTable(int first_changed, absl::Span<const uint32_t> tail);
  // Replaces the sheets of a group behind group 0 from `first_sheet` on by these blocks. If the row has no sheet before
  // `first_sheet`, it has none before it from now on.
  void ChangeSheets(int group, int blocks_per_sheet, int first_sheet, absl::Span<const uint32_t> blocks);
  // The sequence cannot continue. The row keeps what it has, because plans that were made before may still name it. The
  // first failure counts.
  void Fail(RowFailure failure);
  // Records that the content of the table's entry `index` was copied to a block of the host tier.
  void SetSwappedOut(int index, uint32_t host_block);
  // Replaces the record of the row.
  void SetRecord(std::string record);
  // A row with a record keeps the scores of its tokens, for the next manager. `score` is one more entry: that of a
  // drawn token with this number among the generated ones, or that of the token of the prompt at this position. An
  // entry that the row has already is dropped, and so is one behind an entry that it does not have.
  void KeepScore(int number, const v1::ScoreColumns& score) { Keep(number, score, &scores_); }
  void KeepPromptScore(int position, const v1::ScoreColumns& score) { Keep(position - 1, score, prompt_scores_.get()); }
  // Records that K and V of tokens [0, num_tokens) are in the pool, or will be after this step.
  void SetComputed(int num_tokens);
  // A step with a slice of the row began at this time of the steady clock.
  void SetLastSlice(int64_t time_us) { last_slice_us_ = time_us; }

  // Returns whether a sequence has the row.
  bool is_started() const { return !tokens_.empty(); }
  SequenceId sequence() const { return sequence_; }
  // The sequence whose row was copied by Fork. Nothing if the row was started.
  std::optional<SequenceId> forked_from() const { return forked_from_; }
  uint32_t sample_index() const { return sample_index_; }
  int prompt_length() const { return prompt_length_; }
  int num_tokens() const { return static_cast<int>(tokens_.size()); }
  // The number of tokens whose K and V are computed. It is -1 until the first slice, which may begin anywhere, because
  // the blocks before it may come from the prefix cache.
  int num_computed() const { return num_computed_; }
  // The last num_pending() tokens are not known yet; they are 0 here.
  absl::Span<const TokenId> tokens() const { return tokens_; }
  int num_pending() const { return num_pending_; }
  absl::Span<const uint32_t> block_table() const { return block_table_; }
  // Returns the table of a cache group. That of group 0 is the block table.
  SheetSpan Sheets(int group) const;
  // The entries of the table whose blocks were swapped out since they were set, in rising order, with the blocks of the
  // host tier that they were copied to.
  const std::vector<std::pair<int, uint32_t>>& swapped_out() const { return swapped_out_; }
  // The name of the root of the prefix cache for the blocks of the row. Returns null if the manager has given none.
  const std::shared_ptr<const std::string>& cache_root() const { return cache_root_; }
  // The scores of the first generated tokens.
  const v1::ScoreColumns& scores() const { return scores_; }
  // The scores of the prompt from position 1 on. A row shares them with its forks, which have the same prompt. Returns
  // null while no sequence has the row.
  const v1::ScoreColumns* prompt_scores() const { return prompt_scores_.get(); }
  bool keeps_scores() const { return record_ != nullptr && !record_->empty(); }
  // The time of the last slice. Nothing if there was none.
  std::optional<int64_t> last_slice_us() const { return last_slice_us_; }
  // Returns what the manager has stored with the row.
  const std::string& record() const { return *record_; }
  // Returns null unless the sequence has failed. A fork of such a row has failed, too.
  const RowFailure* failure() const { return failure_.get(); }
  // What becomes of the hidden states of the prompt.
  v1::PoolingKind pooling() const { return pooling_; }
  // Returns whether the pooling needs the hidden states of other tokens than the last one.
  bool pools_earlier_tokens() const {
    return pooling_ == v1::POOLING_KIND_MEAN || pooling_ == v1::POOLING_KIND_FIRST_TOKEN;
  }
  // Returns null unless the row pools. Every start of the row makes new ones.
  const std::shared_ptr<PooledStates>& pooled() const { return pooled_; }
  SamplingState& sampling() { return sampling_; }
  const SamplingState& sampling() const { return sampling_; }

 private:
  static void Keep(int index, const v1::ScoreColumns& score, v1::ScoreColumns* scores) {
    if (scores->logprobs_size() == index) scores->MergeFrom(score);
  }

  SequenceId sequence_{0};
  std::optional<SequenceId> forked_from_;
  uint32_t sample_index_ = 0;
  int prompt_length_ = 0;
  int num_computed_ = -1;
  std::optional<int64_t> last_slice_us_;
  std::vector<TokenId> tokens_;
  int num_pending_ = 0;
  bool lacks_draw_ = false;
  // The table of a group behind group 0.
  struct SheetTable {
    int first = 0;  // Index of the first sheet.
    int blocks_per_sheet = 1;
    std::vector<uint32_t> blocks;  // [number of sheets, blocks_per_sheet]
  };

  std::vector<uint32_t> block_table_;
  std::vector<SheetTable> sheet_tables_;  // Of the groups from 1 on that have had sheets.
  std::vector<std::pair<int, uint32_t>> swapped_out_;
  std::shared_ptr<const std::string> cache_root_;
  std::shared_ptr<const std::string> record_;  // Not null while the row has a sequence. Forks share it.
  v1::ScoreColumns scores_;
  std::shared_ptr<v1::ScoreColumns> prompt_scores_;
  std::shared_ptr<const RowFailure> failure_;
  v1::PoolingKind pooling_ = v1::POOLING_KIND_UNSPECIFIED;
  std::shared_ptr<PooledStates> pooled_;
  SamplingState sampling_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_SEQUENCE_ROW_H_
