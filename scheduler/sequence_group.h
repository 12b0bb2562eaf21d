#ifndef QUIRE_SCHEDULER_SEQUENCE_GROUP_H_
#define QUIRE_SCHEDULER_SEQUENCE_GROUP_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/pooled.h"
#include "scheduler/beam_search.h"
#include "scheduler/request.h"
#include "scheduler/sequence.h"

namespace quire {

// The place of a group in every queue: smaller is served first. Kept for life, so a preempted group goes ahead of all
// newcomers of its priority.
struct ServiceRank {
  int priority;
  uint64_t submission;  // 0 for the first request ever submitted.

  auto operator<=>(const ServiceRank&) const = default;
};

// One request and its sequences, which run and wait together. It begins with one sequence, the prompt's; the others are
// forked from it where the prompt ends. The live beams of a beam search are the sequences, in its order.
class SequenceGroup : public Pooled {
 public:
  using Sequences = absl::InlinedVector<std::unique_ptr<Sequence>, 1>;

  SequenceGroup(Request request, ServiceRank rank, SequenceId sequence);

  const Request& request() const { return request_; }
  RequestId id() const { return request_.id; }
  ServiceRank rank() const { return rank_; }
  const Sequences& sequences() const { return sequences_; }
  int num_sequences() const { return static_cast<int>(sequences_.size()); }
  Sequence* Find(SequenceId sequence) const;  // Null when it has left.
  std::vector<SequenceId> SequenceIds() const;
  Sequence* Add(Sequence sequence);
  void Erase(const Sequence* sequence);
  Sequences TakeSequences() { return std::exchange(sequences_, {}); }
  void SetSequences(Sequences sequences) { sequences_ = std::move(sequences); }

  // Samples that are to be forked from the prompt's sequence when that is computed.
  int num_to_fork() const { return num_to_fork_; }
  void OnForked() { num_to_fork_ = 0; }

  // Rows that it runs in; those of samples and beams to come are spare.
  int num_rows() const { return request_.beam.has_value() ? request_.beam->width : num_sequences() + num_to_fork_; }
  RowId TakeSpareRow();  // REQUIRES: there is one.

  // Null unless the request is one.
  BeamSearch* beam_search() { return beam_search_.get(); }
  const BeamSearch* beam_search() const { return beam_search_.get(); }

  // Whether another sequence has yet to compute what this one's blocks are to hold. When it has, the wait ends.
  bool KeepsWaiting(Sequence* sequence);

  // What preemption would throw away, in tokens. Nothing when only results in flight are missing: they still count.
  int NumTokensLost() const;

  bool has_slices_in_flight() const;

  // The worker is lost: nothing is computed, and samples that have not drawn a token are one sequence again.
  void OnSlicesAbandoned();

  // Begins to fetch what planning reads of the group; PrefetchSequence, of the only sequence that most groups have.
  // A step walks over thousands of groups, more than the second-level cache holds.
  void Prefetch() const {
    __builtin_prefetch(this);
    __builtin_prefetch(&request_);
    __builtin_prefetch(&request_.sampling.num_prompt_logprobs);
    __builtin_prefetch(&request_.stop_token_ids);
  }
  void PrefetchSequence() const { sequences_.front()->Prefetch(); }

  // Running groups hold rows and blocks, waiting ones nothing, but swapped ones blocks of the host tier.
  bool is_running = false;
  bool is_swapped = false;
  bool has_started = false;  // A step of it was committed.

 private:
  // Here, because planning reads them of every running group.
  int num_to_fork_;
  std::unique_ptr<BeamSearch> beam_search_;
  Sequences sequences_;

 public:
  std::vector<RowId> spare_rows;  // Of a running group: for samples and beams that are to be forked.
  // First position of the prompt whose logprob was not emitted yet; position 0 has none.
  int next_prompt_logprob = 1;
  // Of the prompt, when it first ran: found in the prefix cache.
  int num_cached_tokens = 0;
  // Of a beam search: generated tokens that were emitted.
  int num_emitted_tokens = 0;
  // Of a waiting group: blocks were short with so many free ones in this plan. See Scheduler::FindEntry.
  int short_with_free_blocks = -1;
  StepId short_in{0};
  // Under the policy of the longest prefix: what was found of the prompt when last looked, and how often others that
  // came later have entered first.
  int num_cached_now = -1;
  int num_passed = 0;

 private:
  const ServiceRank rank_;
  Request request_;
};

// Whom to preempt: of the running groups one of the least urgent priority, of those the one that loses the least work,
// of those the latest submitted. Null when fewer than two run: the last one keeps its blocks.
SequenceGroup* CheapestVictim(absl::Span<SequenceGroup* const> groups);

// Where a sequence of a group that must be recomputed can share what another computes: of `earlier` the sequence that
// agrees longest, in whole blocks, and leaves the last token to be computed. Nothing when less than a block agrees.
std::optional<Sequence::Wait> SharedPart(const Sequence& sequence, absl::Span<const std::unique_ptr<Sequence>> earlier,
                                         int block_size);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SEQUENCE_GROUP_H_
