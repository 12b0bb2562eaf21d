#ifndef QUIRE_WORKER_SEQUENCE_ROW_H_
#define QUIRE_WORKER_SEQUENCE_ROW_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "quire/v1/worker.pb.h"
#include "worker/sampling_state.h"

namespace quire {

// The worker's state of a running sequence: tokens, block table and sampling state. It lasts until the session ends or
// another sequence takes the row. Owned by the executor thread.
class SequenceRow {
 public:
  // Replaces the state of the row. REQUIRES: CheckSequenceStart accepted `start`.
  void Start(const v1::SequenceStart& start, int vocab_size);

  // Replaces the state of the row by a copy of the state of `parent`, which is another row. Only the sequence and the
  // sample index differ. REQUIRES: parent.is_started().
  void Fork(const SequenceRow& parent, SequenceId sequence, uint32_t sample_index);

  // Appends a token that the manager has chosen. REQUIRES: no token is pending.
  void Append(TokenId token);
  // Appends a token that is being drawn.
  void AppendPending();
  // Sets the value of the oldest token that is being drawn.
  void Resolve(TokenId token);
  // Replaces the entries of the block table from `first_changed` on by `tail`. An empty tail changes nothing. REQUIRES:
  // first_changed is at most the length of the table.
  void ChangeTable(int first_changed, absl::Span<const uint32_t> tail);
  // Records that K and V of tokens [0, num_tokens) are in the pool, or will be after this step.
  void SetComputed(int num_tokens);

  // Whether a sequence has taken the row since the session began.
  bool is_started() const { return !tokens_.empty(); }
  SequenceId sequence() const { return sequence_; }
  int prompt_length() const { return prompt_length_; }
  int num_tokens() const { return static_cast<int>(tokens_.size()); }
  // The number of tokens whose K and V are computed. It is -1 until the first slice, which may begin anywhere, because
  // the blocks before it may come from the prefix cache.
  int num_computed() const { return num_computed_; }
  // The last num_pending() tokens are not known yet; they are 0 here.
  absl::Span<const TokenId> tokens() const { return tokens_; }
  int num_pending() const { return num_pending_; }
  absl::Span<const uint32_t> block_table() const { return block_table_; }
  SamplingState& sampling() { return sampling_; }
  const SamplingState& sampling() const { return sampling_; }

 private:
  SequenceId sequence_{0};
  int prompt_length_ = 0;
  int num_computed_ = -1;
  std::vector<TokenId> tokens_;
  int num_pending_ = 0;
  std::vector<uint32_t> block_table_;
  SamplingState sampling_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_SEQUENCE_ROW_H_
