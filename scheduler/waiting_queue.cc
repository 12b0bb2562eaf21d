// SPDX-License-Identifier: Apache-2.0

#include "scheduler/waiting_queue.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Number of groups whose cached prefixes the policy kLongestPrefixFirst compares at a time. It compares the next ones
// in the same visit only when tenants are skipped.
constexpr size_t kMaxCompared = 64;
// Largest number of cached prefixes that one visit looks up, because each look-up reads a whole prompt. A group whose
// prefix was never looked up counts as one without a cached prefix.
constexpr int kMaxLooks = 64;
// Number of groups with longer prefixes that may overtake a group before it goes first.
constexpr int kMaxPassed = 64;
// Number of visits between two look-ups of the cached prefix of a group.
constexpr uint64_t kVisitsBetweenLooks = 8;
// Largest number of remembered tenants without waiting groups.
constexpr size_t kMaxIdleTenants = 4096;
constexpr ServiceRank kFirstRank{INT32_MIN, 0};  // Before all groups.

int WaitingTokens(const SequenceGroup& group) {
  const int num_row_tokens = WaitingQueue::kTokensPerRow * group.num_rows();
  return group.is_swapped() ? num_row_tokens : num_row_tokens + group.sequences().front()->num_known_tokens();
}

}  // namespace

WaitingQueue::WaitingQueue(const SchedulerOptions& options, CachedTokens cached_tokens)
    : policy_(options.policy), shares_(options.tenants), cached_tokens_(std::move(cached_tokens)) {}

ServiceRank WaitingQueue::RankOf(const Request& request, uint64_t submission) const {
  return {policy_ == SchedulingPolicy::kPriority ? request.priority : 0, submission};
}

WaitingQueue::Tenant& WaitingQueue::TenantOf(const SequenceGroup& group) {
  if (policy_ != SchedulingPolicy::kFairShare) return tenants_[""];
  const std::string& name = group.request().tenant;
  if (const auto known = tenants_.find(name); known != tenants_.end()) return known->second;
  ForgetTenants();
  Tenant& tenant = tenants_[name];
  tenant.weight = shares_.Of(name).weight;
  return tenant;
}

// A tenant without waiting groups is not forgotten at once, even if Add would give it at least its count: its groups
// that run are still to be charged. Tenants that are charged least are forgotten first. At least half of the places are
// free afterwards, so few calls search the tenants.
void WaitingQueue::ForgetTenants() {
  if (tenants_.size() - holders_.size() <= kMaxIdleTenants) return;
  absl::erase_if(tenants_, [&](const auto& entry) {
    return entry.second.waiting.empty() && entry.second.served <= least_served_;
  });
  if (tenants_.size() - holders_.size() <= kMaxIdleTenants / 2) return;
  absl::erase_if(tenants_, [](const auto& entry) { return entry.second.waiting.empty(); });
}

void WaitingQueue::SetShares(const TenantShares& shares) {
  shares_ = shares;
  if (policy_ != SchedulingPolicy::kFairShare) return;
  for (auto& [name, tenant] : tenants_) {
    const double weight = shares_.Of(name).weight;
    if (weight == tenant.weight) continue;
    // The tokens by which the tenant is ahead stay the same, and now count by the new weight.
    const double ahead = tenant.served - least_served_;
    if (ahead > 0) tenant.served = least_served_ + ahead * tenant.weight / weight;
    tenant.weight = weight;
  }
}

void WaitingQueue::AddTokens(Tenant* tenant, const SequenceGroup& group, int num_tokens) {
  tenant->num_tokens += num_tokens;
  num_tokens_ += num_tokens;
  if (policy_ != SchedulingPolicy::kPriority) return;
  const auto sum = tokens_by_priority_.try_emplace(group.rank().priority, 0).first;
  sum->second += num_tokens;
  if (sum->second == 0) tokens_by_priority_.erase(sum);
}

void WaitingQueue::Add(SequenceGroup* group) {
  Tenant& tenant = TenantOf(*group);
  if (tenant.waiting.empty()) tenant.served = std::max(tenant.served, least_served_);
  const bool is_new = tenant.waiting.emplace(group->rank(), group).second;
  QUIRE_CHECK(is_new) << group->id() << " waits twice";
  ++size_;
  Holder& holder = holders_[group->request().tenant];
  ++holder.num_groups;
  holder.tenant = &tenant;
  group->set_waiting_tokens(WaitingTokens(*group));
  group->set_waiting_rows(group->num_rows());
  num_rows_ += group->waiting_rows();
  AddTokens(&tenant, *group, group->waiting_tokens());
  num_swapped_ += group->is_swapped();
}

void WaitingQueue::Remove(SequenceGroup* group) {
  Tenant& tenant = TenantOf(*group);
  const size_t num_removed = tenant.waiting.erase(group->rank());
  QUIRE_CHECK_EQ(num_removed, 1u) << group->id() << " does not wait";
  --size_;
  const auto holder = holders_.find(group->request().tenant);
  if (--holder->second.num_groups == 0) holders_.erase(holder);
  AddTokens(&tenant, *group, -group->waiting_tokens());
  num_rows_ -= group->waiting_rows();
  num_swapped_ -= group->is_swapped();
}

SequenceGroup* WaitingQueue::ToDisplace(const std::string& tenant) const {
  using Loaded = std::pair<double, const std::pair<const std::string, Holder>*>;
  const auto own = holders_.find(tenant);
  const double own_load = ((own == holders_.end() ? 0 : own->second.num_groups) + 1) / shares_.Of(tenant).weight;
  std::vector<Loaded> losers;
  for (const auto& holder : holders_) {
    const double load = holder.second.num_groups / shares_.Of(holder.first).weight;
    if (holder.first == tenant || load <= own_load) continue;
    losers.emplace_back(load, &holder);
  }
  std::stable_sort(losers.begin(), losers.end(), [](const Loaded& a, const Loaded& b) { return a.first > b.first; });
  for (const auto& [load, holder] : losers) {
    const Groups& waiting = holder->second.tenant->waiting;
    for (auto it = waiting.rbegin(); it != waiting.rend(); ++it) {
      if (it->second->request().tenant == holder->first && !it->second->progress().has_started) return it->second;
    }
  }
  return nullptr;
}

void WaitingQueue::Visit(absl::FunctionRef<Next(SequenceGroup*)> visit) {
  if (size_ == 0) return;
  if (policy_ == SchedulingPolicy::kFairShare) return VisitFairly(visit);
  if (policy_ == SchedulingPolicy::kLongestPrefixFirst) return VisitLongestPrefixFirst(visit);
  VisitByRank(visit);
}

void WaitingQueue::VisitByRank(absl::FunctionRef<Next(SequenceGroup*)> visit) {
  SkippedTenants skipped;
  Groups& waiting = tenants_.begin()->second.waiting;
  for (auto it = waiting.begin(); it != waiting.end();) {
    const ServiceRank rank = it->first;
    SequenceGroup* const group = it->second;
    if (skipped.empty() || !skipped.contains(group->request().tenant)) {
      const Next next = visit(group);
      if (next == Next::kNone) return;
      if (next == Next::kOfOthers) skipped.insert(group->request().tenant);
    }
    it = waiting.upper_bound(rank);
  }
}

// Each tenant that has waiting groups is in a heap with its next group. A visit can charge tenants, which only makes
// them come later, so the count of a tenant is compared again when it comes up.
void WaitingQueue::VisitFairly(absl::FunctionRef<Next(SequenceGroup*)> visit) {
  struct Turn {
    double served;
    ServiceRank rank;  // Rank of the next group.
    Tenant* tenant;
    bool operator>(const Turn& other) const { return std::tie(served, rank) > std::tie(other.served, other.rank); }
  };
  std::vector<Turn> turns;  // A heap, the next one is at the front.
  turns.reserve(holders_.size());
  for (const auto& [name, holder] : holders_) {
    turns.push_back({holder.tenant->served, holder.tenant->waiting.begin()->first, holder.tenant});
  }
  std::make_heap(turns.begin(), turns.end(), std::greater<>());
  while (!turns.empty()) {
    std::pop_heap(turns.begin(), turns.end(), std::greater<>());
    Turn& turn = turns.back();
    Tenant& tenant = *turn.tenant;
    if (turn.served == tenant.served) {
      least_served_ = std::max(least_served_, tenant.served);
      const Next after = visit(tenant.waiting.find(turn.rank)->second);
      if (after == Next::kNone) return;
      const auto next = after == Next::kOfOthers ? tenant.waiting.end() : tenant.waiting.upper_bound(turn.rank);
      if (next == tenant.waiting.end()) {
        turns.pop_back();
        continue;
      }
      turn.rank = next->first;
    }
    turn.served = tenant.served;
    std::push_heap(turns.begin(), turns.end(), std::greater<>());
  }
}

void WaitingQueue::VisitLongestPrefixFirst(absl::FunctionRef<Next(SequenceGroup*)> visit) {
  ++num_visits_;
  PrefixWalk walk{.skipped = {}, .last = kFirstRank, .last_entered = kFirstRank};
  while (VisitSomePrefixes(visit, &walk)) {
  }
  for (const auto& [rank, group] : tenants_.begin()->second.waiting) {
    if (rank > walk.last_entered) break;
    ++group->prefix_standing().num_passed;
  }
}

bool WaitingQueue::VisitSomePrefixes(absl::FunctionRef<Next(SequenceGroup*)> visit, PrefixWalk* walk) {
  std::vector<std::pair<int, SequenceGroup*>> order;  // Sorted so that the smallest number is visited first.
  Groups& waiting = tenants_.begin()->second.waiting;
  for (auto it = waiting.upper_bound(walk->last); it != waiting.end() && order.size() < kMaxCompared; ++it) {
    const auto& [rank, group] = *it;
    walk->last = rank;
    if (!walk->skipped.empty() && walk->skipped.contains(group->request().tenant)) continue;
    SequenceGroup::PrefixStanding& standing = group->prefix_standing();
    const bool goes_first = group->progress().has_started || standing.num_passed >= kMaxPassed;
    const bool is_due = standing.num_cached_tokens < 0 || (num_visits_ + rank.submission) % kVisitsBetweenLooks == 0;
    if (is_due && walk->num_looks < kMaxLooks) {
      standing.num_cached_tokens = cached_tokens_(*group);
      ++walk->num_looks;
    }
    order.emplace_back(goes_first ? INT32_MIN : -std::max(standing.num_cached_tokens, 0), group);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const size_t num_skipped = walk->skipped.size();
  for (const auto& [key, group] : order) {
    if (!walk->skipped.empty() && walk->skipped.contains(group->request().tenant)) continue;
    const ServiceRank rank = group->rank();
    const int num_before = size_;
    const Next next = visit(group);
    if (size_ < num_before) walk->last_entered = std::max(walk->last_entered, rank);
    if (next == Next::kNone) return false;
    if (next == Next::kOfOthers) walk->skipped.insert(group->request().tenant);
  }
  return walk->skipped.size() > num_skipped;
}

void WaitingQueue::ForEach(absl::FunctionRef<void(SequenceGroup*)> call) const {
  for (const auto& [name, holder] : holders_) {
    for (const auto& [rank, group] : holder.tenant->waiting) call(group);
    if (policy_ != SchedulingPolicy::kFairShare) return;  // All groups wait at the same place.
  }
}

void WaitingQueue::OnSlicesAbandoned() {
  for (auto& [name, tenant] : tenants_) {
    for (const auto& [rank, group] : tenant.waiting) {
      group->OnSlicesAbandoned();
      // Groups that were swapped must be computed again.
      const int num_tokens = WaitingTokens(*group);
      AddTokens(&tenant, *group, num_tokens - group->waiting_tokens());
      group->set_waiting_tokens(num_tokens);
      num_rows_ += group->num_rows() - group->waiting_rows();
      group->set_waiting_rows(group->num_rows());
    }
  }
  num_swapped_ = 0;
}

int64_t WaitingQueue::NumTokensAhead(const Request& request) const {
  if (size_ == 0) return 0;
  if (policy_ == SchedulingPolicy::kPriority) {
    int64_t num_tokens = 0;
    for (const auto& [priority, sum] : tokens_by_priority_) {
      if (priority > request.priority) break;
      num_tokens += sum;
    }
    return num_tokens;
  }
  if (policy_ != SchedulingPolicy::kFairShare) return num_tokens_;
  // While the tenant is served what waits of it, each other tenant is served in the ratio of the weights.
  const auto own = tenants_.find(request.tenant);
  if (own == tenants_.end()) return 0;
  const double share = static_cast<double>(own->second.num_tokens) / own->second.weight;
  double num_tokens = 0;
  for (const auto& [name, holder] : holders_) {
    num_tokens += std::min(static_cast<double>(holder.tenant->num_tokens), share * holder.tenant->weight);
  }
  return static_cast<int64_t>(num_tokens);
}

// NumTokensAhead of one tenant after the other would take quadratic time. In the order of num_tokens / weight, the
// tenants before one count with all of their tokens, and the later ones count by their weights.
std::vector<TenantBacklog> WaitingQueue::Backlogs() const {
  if (size_ == 0) return {};
  if (policy_ != SchedulingPolicy::kFairShare) return {{.queue = "", .num_tokens_ahead = num_tokens_}};
  struct Share {
    double length;  // num_tokens / weight
    const std::pair<const std::string, Holder>* holder;
  };
  std::vector<Share> shares;
  double weight_behind = 0;
  for (const auto& holder : holders_) {
    const Tenant& tenant = *holder.second.tenant;
    shares.push_back({static_cast<double>(tenant.num_tokens) / tenant.weight, &holder});
    weight_behind += tenant.weight;
  }
  std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.length < b.length; });
  std::vector<TenantBacklog> backlogs;
  double num_tokens_before = 0;
  for (const auto& [length, holder] : shares) {
    backlogs.push_back(
        {.queue = holder->first, .num_tokens_ahead = static_cast<int64_t>(num_tokens_before + length * weight_behind)});
    num_tokens_before += static_cast<double>(holder->second.tenant->num_tokens);
    weight_behind -= holder->second.tenant->weight;
  }
  return backlogs;
}

int WaitingQueue::NumAhead(const SequenceGroup& group) {
  int num_ahead = 0;
  const double least_served = least_served_;
  const uint64_t num_visits = num_visits_;
  Visit([&](SequenceGroup* other) {
    if (other == &group) return Next::kNone;
    ++num_ahead;
    return Next::kInOrder;
  });
  least_served_ = least_served;
  num_visits_ = num_visits;
  return num_ahead;
}

void WaitingQueue::Charge(const std::string& tenant, int num_tokens) {
  if (policy_ != SchedulingPolicy::kFairShare) return;
  const auto it = tenants_.find(tenant);
  if (it != tenants_.end()) it->second.served += num_tokens / it->second.weight;
}

}  // namespace quire
