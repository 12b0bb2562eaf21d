// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_SEQUENCE_GROUP_H_
#define QUIRE_SCHEDULER_SEQUENCE_GROUP_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/cache_groups.h"
#include "base/ids.h"
#include "base/pooled.h"
#include "scheduler/beam_search.h"
#include "scheduler/request.h"
#include "scheduler/sequence.h"
#include "scheduler/suspicion.h"

namespace quire {

// The place of a group in every queue: the smallest rank is served first. A group keeps its rank as long as it stays
// with one scheduler, so a preempted group goes ahead of all newcomers of its priority.
struct ServiceRank {
  int priority;
  uint64_t submission;  // Requests of the same priority are served in the order of this number.

  auto operator<=>(const ServiceRank&) const = default;
};

// One request and its sequences, which run and wait together. A group begins with one sequence, which computes the
// prompt; the other samples are forked from it at the end of the prompt. In a beam search the sequences are the live
// beams, in the order of the search. Owned by the step-loop thread.
class SequenceGroup : public Pooled {
 public:
  using Sequences = absl::InlinedVector<std::unique_ptr<Sequence>, 1>;

  enum class State : uint8_t {
    kWaiting,  // The group holds no rows and no blocks.
    kSwapped,  // The group waits, and its blocks are in the host tier.
    kRunning,  // The group holds rows and blocks of the pool.
  };

  // What callers have been told about the request.
  struct Progress {
    bool has_started = false;     // A step of the group was committed.
    int num_cached_tokens = 0;    // Tokens of the prompt that were in the prefix cache when the group first ran.
    int next_prompt_logprob = 1;  // First prompt position whose logprob was not emitted yet. Position 0 has none.
    int num_emitted_tokens = 0;   // Generated tokens that a beam search has emitted.
    int num_moves = 0;            // Number of times that it left a scheduler or came from an earlier manager.
  };

  // What AdmissionControl found when it last had too few blocks for the waiting group.
  struct Shortage {
    int num_free_blocks = -1;  // Blocks that were free; -1 when blocks were not short since the group began to wait.
    StepId step{0};            // The plan in which they were short.
  };

  // What WaitingQueue remembers of the group under the policy kLongestPrefixFirst.
  struct PrefixStanding {
    int num_cached_tokens = -1;  // Cached tokens of the prompt at the last lookup; -1 before the first lookup.
    int num_passed = 0;          // Number of later groups that have entered first.
  };

  // When the request continues several samples, these have the ids from `sequence` on, until EnterScheduler.
  SequenceGroup(Request request, ServiceRank rank, SequenceId sequence);

  const Request& request() const { return request_; }
  // The sequences continue with the numerics of this generation, which is another one than before.
  void SetGeneration(GenerationId generation);
  RequestId id() const { return request_.id; }
  ServiceRank rank() const { return rank_; }
  const Sequences& sequences() const { return sequences_; }
  int num_sequences() const { return static_cast<int>(sequences_.size()); }
  Sequence* Find(SequenceId sequence) const;  // Returns null when the sequence has left the group.
  std::vector<SequenceId> SequenceIds() const;
  Sequence* Add(Sequence sequence);
  void Erase(const Sequence* sequence);
  Sequences TakeSequences() { return std::exchange(sequences_, {}); }
  void SetSequences(Sequences sequences) { sequences_ = std::move(sequences); }

  State state() const { return state_; }
  bool is_running() const { return state_ == State::kRunning; }
  bool is_swapped() const { return state_ == State::kSwapped; }
  void set_state(State state) { state_ = state; }

  // The number of samples that have yet to be forked from the sequence that computes the prompt.
  int num_to_fork() const { return num_to_fork_; }
  void OnForked() { num_to_fork_ = 0; }

  // The number of rows that the group runs in. It includes the spare rows, which are kept for samples and beams that
  // are forked later.
  int num_rows() const { return request_.beam.has_value() ? request_.beam->width : num_sequences() + num_to_fork_; }
  void AddSpareRow(RowId row) { spare_rows_.push_back(row); }
  RowId TakeSpareRow();  // REQUIRES: the group has a spare row. Takes the one that was added first.
  std::vector<RowId> TakeSpareRows() { return std::exchange(spare_rows_, {}); }

  // Returns null when the request is not a beam search.
  BeamSearch* beam_search() { return beam_search_.get(); }
  const BeamSearch* beam_search() const { return beam_search_.get(); }

  // The scores of tokens can be kept, so that the rows have them wherever the request runs.
  void KeepScores() { keeps_scores_ = true; }
  bool keeps_scores() const { return keeps_scores_; }
  // The emitted prompt logprobs from position 1 on, if the group keeps scores.
  const std::vector<ScoredToken>& prompt_scores() const { return prompt_scores_; }
  std::vector<ScoredToken>& prompt_scores() { return prompt_scores_; }
  // Returns how many numbers all scores are that the starts of its sequences tell.
  int64_t NumScoreNumbers() const;

  // Returns what the search has become, with the sequences of its beams. REQUIRES: the group is a search that is not
  // done.
  BeamSearchState SearchState() const;

  // Returns whether another sequence of the group has yet to compute blocks that this one shares. Once that is done,
  // the wait of the sequence is reset.
  bool KeepsWaiting(Sequence* sequence);

  // The number of computed tokens that preemption would throw away. It is 0 when only results in flight are missing,
  // because they still count after a preemption.
  int NumTokensLost() const;

  // The most blocks that the group needs in an empty pool to continue: for its tokens and for the next one of each
  // sequence. The sequences share the whole blocks of the prompt.
  int64_t MaxBlocksToGoOn(const CacheGroups& groups) const;
  // The tokens of all its sequences behind the prompt.
  int NumGeneratedTokens() const;

  // Returns whether any sample or beam has drawn a token.
  bool has_begun() const;

  bool has_slices_in_flight() const;

  // The worker is lost while the group waits: nothing of it is computed any more, and its samples are one sequence
  // again if none of them has drawn a token. REQUIRES: the group does not run.
  void OnSlicesAbandoned();

  // The group has come from another scheduler, or continues samples. It gets a new rank, and its sequences get new ids.
  // REQUIRES: the group waits, and nothing of it is computed or in flight.
  void EnterScheduler(ServiceRank rank, absl::FunctionRef<SequenceId()> new_id);

  const Progress& progress() const { return progress_; }
  Progress& progress() { return progress_; }
  const Suspicion& suspicion() const { return suspicion_; }
  Suspicion& suspicion() { return suspicion_; }
  Shortage& shortage() { return shortage_; }
  PrefixStanding& prefix_standing() { return prefix_standing_; }
  // Returns what the group counts for in the waiting queue, which sets it.
  int waiting_tokens() const { return waiting_tokens_; }
  void set_waiting_tokens(int num_tokens) { waiting_tokens_ = num_tokens; }
  // Number of rows when it began to wait. Samples may end while it does.
  int waiting_rows() const { return waiting_rows_; }
  void set_waiting_rows(int num_rows) { waiting_rows_ = num_rows; }

  // Prefetches what planning reads of the group. PrefetchSequence prefetches the first sequence, which is the only one
  // of most groups. A step walks over thousands of groups, which do not fit into the second-level cache.
  void Prefetch() const {
    __builtin_prefetch(this);
    __builtin_prefetch(&request_);
    __builtin_prefetch(&request_.sampling.num_prompt_logprobs);
    __builtin_prefetch(&request_.stop_token_ids);
  }
  void PrefetchSequence() const { sequences_.front()->Prefetch(); }

 private:
  // Planning reads the first four fields of every running group, so they share a cache line.
  State state_ = State::kWaiting;
  int num_to_fork_;
  std::unique_ptr<BeamSearch> beam_search_;
  Sequences sequences_;

  Progress progress_;
  Suspicion suspicion_;
  Shortage shortage_;
  PrefixStanding prefix_standing_;
  int waiting_tokens_ = 0;
  int waiting_rows_ = 0;
  bool keeps_scores_ = false;
  std::vector<ScoredToken> prompt_scores_;
  std::vector<RowId> spare_rows_;
  ServiceRank rank_;
  Request request_;
};

// Returns where a sequence that must be recomputed can share the blocks of another sequence of its group. Among
// `earlier`, it finds the sequence that agrees with `sequence` for the largest number of whole blocks. The last token
// of `sequence` is not shared, because it must be computed. A sample that has drawn nothing shares the whole prompt: it
// only repeats its draw, and the group holds no more blocks of the prompt than before. Returns nothing when less than a
// block agrees.
std::optional<Sequence::Wait> SharedPart(const Sequence& sequence, absl::Span<const std::unique_ptr<Sequence>> earlier,
                                         int block_size);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SEQUENCE_GROUP_H_
