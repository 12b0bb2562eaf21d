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

// The groups that wait, in the order in which they are served. Each policy is one way to walk over them. Under every
// policy a preempted group keeps the place that its submission gave it. The groups are borrowed. Owned by the step-loop
// thread.
//
// Fair share is the virtual token counter of Sheng et al., "Fairness in serving large language models" (OSDI 2024): the
// next tenant is the one that was served the fewest tokens, divided by its weight. A tenant that returns from idleness
// starts with the count of the least served other tenant, so it cannot save up tokens.
class WaitingQueue {
 public:
  // How many tokens of the prompt of the group are cached now.
  using CachedTokens = std::function<int(const SequenceGroup&)>;

  WaitingQueue(const SchedulerOptions& options, CachedTokens cached_tokens);

  // The rank that the request keeps for life among the requests of its tenant.
  ServiceRank RankOf(const Request& request, uint64_t submission) const;

  void Add(SequenceGroup* group);
  void Remove(SequenceGroup* group);
  bool empty() const { return size_ == 0; }
  int size() const { return size_; }
  // The work that waits, in tokens: those that the groups must compute before they go on, and kTokensPerGroup for each
  // group, because it also takes a row. Swapped groups compute nothing. What the prefix cache holds is not known here.
  static constexpr int kTokensPerGroup = 64;
  int64_t num_tokens() const { return num_tokens_; }
  // The part of num_tokens() that would be served before a request that is submitted now. Under fair share this is an
  // estimate by the weights.
  int64_t NumTokensAhead(const Request& request) const;
  // The number of waiting groups whose blocks are in the host tier.
  int num_swapped() const { return num_swapped_; }

  // Calls `visit` with one group after the other, in the order of the policy, until it returns false. A visit may
  // remove the group that it is called with, and no other.
  void Visit(absl::FunctionRef<bool(SequenceGroup*)> visit);

  // Calls `call` with every group, in no order that matters.
  void ForEach(absl::FunctionRef<void(SequenceGroup*)> call) const;

  // The worker is lost: calls SequenceGroup::OnSlicesAbandoned of every group.
  void OnSlicesAbandoned();

  // The number of groups that Visit would visit before this one. Changes no turn, but may look up cached prefixes.
  int NumAhead(const SequenceGroup& group);

  // The scheduler has planned `num_tokens` tokens for the tenant.
  void Charge(const std::string& tenant, int num_tokens);

 private:
  using Groups = absl::btree_map<ServiceRank, SequenceGroup*>;
  struct Tenant {
    Groups waiting;
    int64_t num_tokens = 0;  // Of `waiting`.
    double served = 0;       // Tokens that were served, divided by the weight.
    double weight = 1;
  };

  void VisitFairly(absl::FunctionRef<bool(SequenceGroup*)> visit);
  void VisitLongestPrefixFirst(absl::FunctionRef<bool(SequenceGroup*)> visit);
  Tenant& TenantOf(const SequenceGroup& group);

  const SchedulerOptions options_;
  const CachedTokens cached_tokens_;
  // By name. Unless the policy is fair share, there is only one tenant, with an empty name.
  absl::btree_map<std::string, Tenant> tenants_;
  double least_served_ = 0;  // What the tenant that was visited last had been served at that time.
  int size_ = 0;
  int64_t num_tokens_ = 0;
  int num_swapped_ = 0;
  uint64_t num_visits_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_WAITING_QUEUE_H_
