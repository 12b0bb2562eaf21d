#ifndef QUIRE_SCHEDULER_SEQUENCE_GROUP_H_
#define QUIRE_SCHEDULER_SEQUENCE_GROUP_H_

#include <compare>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
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

// One request and its sequences, which run and wait together.
class SequenceGroup {
 public:
  SequenceGroup(Request request, ServiceRank rank, SequenceId sequence);

  const Request& request() const { return request_; }
  RequestId id() const { return request_.id; }
  ServiceRank rank() const { return rank_; }
  absl::Span<Sequence> sequences() { return absl::MakeSpan(sequences_); }
  absl::Span<const Sequence> sequences() const { return sequences_; }
  Sequence* Find(SequenceId sequence);  // Null when it has left.

  // What preemption would throw away, in tokens. Nothing when only results in flight are missing: they still count.
  int NumTokensLost() const;

  bool has_slices_in_flight() const;

  // Running groups hold rows and blocks, waiting ones nothing.
  bool is_running = false;
  // A step of it was committed.
  bool has_started = false;
  // First position of the prompt whose logprob was not emitted yet; position 0 has none.
  int next_prompt_logprob = 1;

 private:
  const Request request_;
  const ServiceRank rank_;
  std::vector<Sequence> sequences_;
};

// Whom to preempt: of the running groups one of the least urgent priority, of those the one that loses the least work,
// of those the latest submitted. Null when fewer than two run: the last one keeps its blocks.
SequenceGroup* CheapestVictim(absl::Span<SequenceGroup* const> groups);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SEQUENCE_GROUP_H_
