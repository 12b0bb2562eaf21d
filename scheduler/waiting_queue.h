// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_WAITING_QUEUE_H_
#define QUIRE_SCHEDULER_WAITING_QUEUE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/sequence_group.h"

namespace quire {

// Under fair share each tenant has a queue of its own, which is not longer because another tenant's is. Under the other
// policies all tenants wait in one queue, which has an empty name.
inline absl::string_view QueueNameOf(SchedulingPolicy policy, absl::string_view tenant) {
  return policy == SchedulingPolicy::kFairShare ? tenant : absl::string_view();
}

// The work that waits before a request that joins a queue.
struct TenantBacklog {
  absl::string_view queue;       // Valid until the next non-const call of the WaitingQueue.
  int64_t num_tokens_ahead = 0;  // As WaitingQueue::NumTokensAhead.
};

// The groups that wait, in the order in which they are served. Each policy is one way to walk over them. Under every
// policy a preempted group keeps the place that its submission gave it. The groups are borrowed. Owned by the step-loop
// thread.
//
// Fair share is the virtual token counter of Sheng et al., "Fairness in serving large language models" (OSDI 2024): the
// next tenant is the one that was served the fewest tokens, divided by its weight. A tenant that returns from idleness
// starts with the count of the least served other tenant, so it cannot save up tokens.
class WaitingQueue {
 public:
  // Returns how many tokens of the prompt of the group are cached now.
  using CachedTokens = std::function<int(const SequenceGroup&)>;

  WaitingQueue(const SchedulerOptions& options, CachedTokens cached_tokens);

  // The rank that the request keeps for life among the requests of its tenant.
  ServiceRank RankOf(const Request& request, uint64_t submission) const;

  // Replaces the weights of the tenants.
  void SetShares(const TenantShares& shares);

  void Add(SequenceGroup* group);
  void Remove(SequenceGroup* group);
  bool empty() const { return size_ == 0; }
  int size() const { return size_; }
  // The work that waits, in tokens: the tokens that the groups must compute before they continue, and kTokensPerRow for
  // each row that they take. Swapped groups compute nothing. What the prefix cache holds is not known here.
  static constexpr int kTokensPerRow = 64;
  int64_t num_tokens() const { return num_tokens_; }
  // The part of num_tokens() that is to be computed.
  int64_t num_uncomputed_tokens() const { return num_tokens_ - kTokensPerRow * num_rows_; }
  // The part of num_tokens() that would be served before a request that is submitted now. Under fair share this is an
  // estimate by the weights.
  int64_t NumTokensAhead(const Request& request) const;
  // What waits before the next request of each queue that has waiting groups, see TenantBacklog.
  std::vector<TenantBacklog> Backlogs() const;
  // The tenant of all waiting groups. Returns null when there are none, or groups of several tenants.
  const std::string* only_tenant() const { return holders_.size() == 1 ? &holders_.begin()->first : nullptr; }
  // The number of waiting groups whose blocks are in the host tier.
  int num_swapped() const { return num_swapped_; }

  // Which group Visit visits next.
  enum class Next {
    kInOrder,
    kOfOthers,  // From here on, only groups of other tenants than this group's.
    kNone,
  };
  // Calls `visit` with one group after the other, in the order of the policy, until it returns kNone. A visit may
  // remove the group that it is called with, and no other.
  void Visit(absl::FunctionRef<Next(SequenceGroup*)> visit);

  // The group that gives its place in a full queue to a new group of `tenant`. Places belong to the tenants in the
  // ratio of their weights. The tenants that have more waiting groups by weight than `tenant` has with the new group
  // are tried in turn, the one that has the most first. Of the groups of such a tenant that have not run yet, the last
  // by rank leaves: the one that was submitted last, or under the policy kPriority, the last of the least urgent ones.
  // Returns null when all groups of these tenants have run, or when there is no such tenant.
  SequenceGroup* ToDisplace(const std::string& tenant) const;

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
    int64_t num_tokens = 0;  // Sum over the groups in `waiting`.
    double served = 0;       // Tokens that were served, divided by the weight.
    double weight = 1;
  };

  // A tenant that has waiting groups.
  struct Holder {
    int num_groups = 0;
    Tenant* tenant = nullptr;  // Its groups wait there.
  };

  using SkippedTenants = absl::flat_hash_set<absl::string_view>;

  void VisitByRank(absl::FunctionRef<Next(SequenceGroup*)> visit);
  void VisitFairly(absl::FunctionRef<Next(SequenceGroup*)> visit);
  void VisitLongestPrefixFirst(absl::FunctionRef<Next(SequenceGroup*)> visit);
  // How far a visit of the policy kLongestPrefixFirst has come.
  struct PrefixWalk {
    SkippedTenants skipped;
    ServiceRank last;          // The groups that were compared end with it.
    ServiceRank last_entered;  // The highest rank of those that have entered.
    int num_looks = 0;         // Cached prefixes that were looked up.
  };
  // Compares up to kMaxCompared groups behind `walk->last` whose tenants are not skipped, visits them, and moves
  // `walk->last` behind them. Returns whether other groups are to be compared because tenants were skipped.
  bool VisitSomePrefixes(absl::FunctionRef<Next(SequenceGroup*)> visit, PrefixWalk* walk);
  Tenant& TenantOf(const SequenceGroup& group);
  // Forgets tenants without waiting groups when there are too many.
  void ForgetTenants();
  // Adds to the sums of tokens that the group belongs to.
  void AddTokens(Tenant* tenant, const SequenceGroup& group, int num_tokens);

  const SchedulingPolicy policy_;
  TenantShares shares_;
  const CachedTokens cached_tokens_;
  // By name, also of tenants that have no waiting groups now. Unless the policy is fair share, there is only one
  // tenant, with an empty name.
  absl::node_hash_map<std::string, Tenant> tenants_;
  double least_served_ = 0;  // Service of the tenant that was visited last, at that time.
  int size_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_rows_ = 0;                              // Rows of the groups when they began to wait.
  absl::btree_map<int, int64_t> tokens_by_priority_;  // The parts of num_tokens_. Only the policy kPriority uses it.
  absl::btree_map<std::string, Holder> holders_;      // The tenants that have waiting groups, under every policy.
  int num_swapped_ = 0;
  uint64_t num_visits_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_WAITING_QUEUE_H_
