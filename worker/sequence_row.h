#ifndef QUIRE_WORKER_SEQUENCE_ROW_H_
#define QUIRE_WORKER_SEQUENCE_ROW_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "quire/v1/worker.pb.h"
#include "worker/sampling_state.h"

namespace quire {

// The worker's side of a running sequence: tokens, block table and sampling state. Lives as long as the session or
// until another sequence takes the row. Owned by the executor thread.
class SequenceRow {
 public:
  // Forgets what the row held. REQUIRES: CheckSequenceStart accepted `start`.
  void Start(const v1::SequenceStart& start, int vocab_size);

  // Forgets what the row held and becomes what `parent`, another row, is now, but for its name and its sample index.
  // Costs a copy of what the parent holds; nothing is counted again. REQUIRES: parent.is_started().
  void Fork(const SequenceRow& parent, SequenceId sequence, uint32_t sample_index);

  // A token that the manager chose. REQUIRES: no token is pending.
  void Append(TokenId token);
  // A token that is being drawn: what it is comes with Resolve, in the same order.
  void AppendPending();
  void Resolve(TokenId token);
  // Entries from `first_changed` on become `tail`; an empty tail changes nothing. REQUIRES: first_changed is at most
  // the table's length.
  void ChangeTable(int first_changed, absl::Span<const uint32_t> tail);
  // K and V of tokens [0, num_tokens) are in the pool or will be after this step.
  void SetComputed(int num_tokens);

  // Neither started since the session's begin: such a row has no tokens.
  bool is_started() const { return !tokens_.empty(); }
  SequenceId sequence() const { return sequence_; }
  int prompt_length() const { return prompt_length_; }
  int num_tokens() const { return static_cast<int>(tokens_.size()); }
  // -1 until the first slice, which may begin anywhere: the blocks before it came from the prefix cache.
  int num_computed() const { return num_computed_; }
  // The last num_pending() of them are not known yet, and 0.
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
