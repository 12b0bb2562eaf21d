#ifndef QUIRE_SCHEDULER_WAITING_QUEUE_H_
#define QUIRE_SCHEDULER_WAITING_QUEUE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/sequence_group.h"

namespace quire {

// The requests that wait, and who is next: each policy is one way to walk over them. Under every policy a preempted
// request keeps the place that its submission gave it.
//
// Fair share is the virtual token counter of Sheng et al., "Fairness in serving large language models" (OSDI 2024): the
// tenant that was served the fewest tokens, divided by its weight, is next. A tenant that comes back from idleness
// starts where the least served of the others is: it cannot save up.
class WaitingQueue {
 public:
  // How much of the request's prompt is cached now, in tokens.
  using CachedTokens = std::function<int(const SequenceGroup&)>;

  WaitingQueue(const SchedulerOptions& options, CachedTokens cached_tokens);

  // Its place among the others of its tenant, for life.
  ServiceRank RankOf(const Request& request, uint64_t submission) const;

  void Add(SequenceGroup* group);
  void Remove(SequenceGroup* group);
  bool empty() const { return size_ == 0; }
  int size() const { return size_; }
  // The number of waiting groups whose blocks are in the host tier.
  int num_swapped() const { return num_swapped_; }

  // Calls `visit` with one group after the other, in the order of the policy, until it returns false. A visit may
  // remove the group that it is called with, and nothing else.
  void Visit(absl::FunctionRef<bool(SequenceGroup*)> visit);

  // Calls `call` with every group, in no order that matters.
  void ForEach(absl::FunctionRef<void(SequenceGroup*)> call) const;

  // The worker is lost: calls SequenceGroup::OnSlicesAbandoned of every group.
  void OnSlicesAbandoned();

  // The requests that Visit comes to before this one. Changes nobody's turn, but may look up a cached prefix anew.
  int NumAhead(const SequenceGroup& group);

  // The scheduler did so many tokens of work for the tenant.
  void Charge(const std::string& tenant, int num_tokens);

 private:
  using Groups = absl::btree_map<ServiceRank, SequenceGroup*>;
  struct Tenant {
    Groups waiting;
    double served = 0;  // Tokens, divided by the weight.
    double weight = 1;
  };

  void VisitFairly(absl::FunctionRef<bool(SequenceGroup*)> visit);
  void VisitLongestPrefixFirst(absl::FunctionRef<bool(SequenceGroup*)> visit);
  Tenant& TenantOf(const SequenceGroup& group);

  const SchedulerOptions options_;
  const CachedTokens cached_tokens_;
  absl::btree_map<std::string, Tenant> tenants_;  // One of no name unless the policy is fair share.
  double least_served_ = 0;                       // When a tenant was visited last.
  int size_ = 0;
  int num_swapped_ = 0;
  uint64_t num_visits_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_WAITING_QUEUE_H_
