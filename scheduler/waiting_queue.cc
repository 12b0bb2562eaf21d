#include "scheduler/waiting_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// The policy kLongestPrefixFirst compares the cached prefixes of at most this many groups.
constexpr size_t kMaxCompared = 64;
// A group goes first after this many groups with longer prefixes have overtaken it.
constexpr int kMaxPassed = 64;
// The cached prefix of each group is looked up once in this many visits.
constexpr uint64_t kVisitsBetweenLooks = 8;
// When there are more tenants than this, those without waiting groups are forgotten.
constexpr size_t kMaxTenants = 4096;
// Before and behind all groups.
constexpr ServiceRank kFirstRank{INT32_MIN, 0};
constexpr ServiceRank kLastRank{INT32_MAX, UINT64_MAX};

int WaitingTokens(const SequenceGroup& group) {
  if (group.is_swapped()) return WaitingQueue::kTokensPerGroup;
  return WaitingQueue::kTokensPerGroup + group.sequences().front()->num_known_tokens();
}

}  // namespace

WaitingQueue::WaitingQueue(const SchedulerOptions& options, CachedTokens cached_tokens)
    : options_(options), shares_(options.tenants), cached_tokens_(std::move(cached_tokens)) {}

ServiceRank WaitingQueue::RankOf(const Request& request, uint64_t submission) const {
  return {options_.policy == SchedulingPolicy::kPriority ? request.priority : 0, submission};
}

WaitingQueue::Tenant& WaitingQueue::TenantOf(const SequenceGroup& group) {
  if (options_.policy != SchedulingPolicy::kFairShare) return tenants_[""];
  const std::string& name = group.request().tenant;
  const auto [it, is_new] = tenants_.try_emplace(name);
  if (is_new) it->second.weight = shares_.Of(name).weight;
  return it->second;
}

void WaitingQueue::SetShares(const TenantShares& shares) {
  shares_ = shares;
  if (options_.policy != SchedulingPolicy::kFairShare) return;
  for (auto& [name, tenant] : tenants_) tenant.weight = shares_.Of(name).weight;
}

void WaitingQueue::AddTokens(Tenant* tenant, const SequenceGroup& group, int num_tokens) {
  tenant->num_tokens += num_tokens;
  num_tokens_ += num_tokens;
  if (options_.policy != SchedulingPolicy::kPriority) return;
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
  ++sizes_[group->request().tenant];
  group->set_waiting_tokens(WaitingTokens(*group));
  AddTokens(&tenant, *group, group->waiting_tokens());
  num_swapped_ += group->is_swapped();
}

void WaitingQueue::Remove(SequenceGroup* group) {
  Tenant& tenant = TenantOf(*group);
  const size_t num_removed = tenant.waiting.erase(group->rank());
  QUIRE_CHECK_EQ(num_removed, 1u) << group->id() << " does not wait";
  --size_;
  if (const auto size = sizes_.find(group->request().tenant); --size->second == 0) sizes_.erase(size);
  AddTokens(&tenant, *group, -group->waiting_tokens());
  num_swapped_ -= group->is_swapped();
}

SequenceGroup* WaitingQueue::ToDisplace(const std::string& tenant) const {
  const auto own = sizes_.find(tenant);
  double most = ((own == sizes_.end() ? 0 : own->second) + 1) / shares_.Of(tenant).weight;
  const std::string* loser = nullptr;
  for (const auto& [name, size] : sizes_) {
    const double load = size / shares_.Of(name).weight;
    if (name == tenant || load <= most) continue;
    most = load;
    loser = &name;
  }
  if (loser == nullptr) return nullptr;
  const bool has_own_queue = options_.policy == SchedulingPolicy::kFairShare;
  const Groups& waiting = tenants_.find(has_own_queue ? *loser : "")->second.waiting;
  for (auto it = waiting.rbegin(); it != waiting.rend(); ++it) {
    if (it->second->request().tenant == *loser && !it->second->progress().has_started) return it->second;
  }
  return nullptr;
}

void WaitingQueue::Visit(absl::FunctionRef<Next(SequenceGroup*)> visit) {
  if (size_ == 0) return;
  if (options_.policy == SchedulingPolicy::kFairShare) return VisitFairly(visit);
  if (options_.policy == SchedulingPolicy::kLongestPrefixFirst) return VisitLongestPrefixFirst(visit);
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

// A visit can change which tenant is next, so the next one is searched after each visit.
void WaitingQueue::VisitFairly(absl::FunctionRef<Next(SequenceGroup*)> visit) {
  if (tenants_.size() > kMaxTenants) {
    absl::erase_if(tenants_, [](const auto& entry) { return entry.second.waiting.empty(); });
  }
  absl::btree_map<std::string, ServiceRank> visited;  // The last visited group of each tenant.
  while (true) {
    Tenant* next = nullptr;
    const std::string* next_name = nullptr;
    Groups::iterator next_group;
    for (auto& [name, tenant] : tenants_) {
      const auto last = visited.find(name);
      const auto group = last == visited.end() ? tenant.waiting.begin() : tenant.waiting.upper_bound(last->second);
      if (group == tenant.waiting.end()) continue;
      if (next != nullptr && std::tuple(next->served, next_group->first) <= std::tuple(tenant.served, group->first)) {
        continue;
      }
      next = &tenant;
      next_name = &name;
      next_group = group;
    }
    if (next == nullptr) return;
    least_served_ = std::max(least_served_, next->served);
    ServiceRank& last_visited = visited[*next_name] = next_group->first;
    const Next after = visit(next_group->second);
    if (after == Next::kNone) return;
    if (after == Next::kOfOthers) last_visited = kLastRank;
  }
}

void WaitingQueue::VisitLongestPrefixFirst(absl::FunctionRef<Next(SequenceGroup*)> visit) {
  ++num_visits_;
  SkippedTenants skipped;
  ServiceRank last = kFirstRank;
  ServiceRank last_entered = kFirstRank;
  while (VisitSomePrefixes(visit, &skipped, &last, &last_entered)) {
  }
  for (const auto& [rank, group] : tenants_.begin()->second.waiting) {
    if (rank > last_entered) break;
    ++group->prefix_standing().num_passed;
  }
}

bool WaitingQueue::VisitSomePrefixes(absl::FunctionRef<Next(SequenceGroup*)> visit, SkippedTenants* skipped,
                                     ServiceRank* last, ServiceRank* last_entered) {
  std::vector<std::pair<int, SequenceGroup*>> order;  // Sorted so that the smallest number is visited first.
  Groups& waiting = tenants_.begin()->second.waiting;
  for (auto it = waiting.upper_bound(*last); it != waiting.end() && order.size() < kMaxCompared; ++it) {
    const auto& [rank, group] = *it;
    *last = rank;
    if (!skipped->empty() && skipped->contains(group->request().tenant)) continue;
    SequenceGroup::PrefixStanding& standing = group->prefix_standing();
    const bool goes_first = group->progress().has_started || standing.num_passed >= kMaxPassed;
    if (standing.num_cached_tokens < 0 || (num_visits_ + rank.submission) % kVisitsBetweenLooks == 0) {
      standing.num_cached_tokens = cached_tokens_(*group);
    }
    order.emplace_back(goes_first ? INT32_MIN : -standing.num_cached_tokens, group);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const size_t num_skipped = skipped->size();
  for (const auto& [key, group] : order) {
    if (!skipped->empty() && skipped->contains(group->request().tenant)) continue;
    const ServiceRank rank = group->rank();
    const int num_before = size_;
    const Next next = visit(group);
    if (size_ < num_before) *last_entered = std::max(*last_entered, rank);
    if (next == Next::kNone) return false;
    if (next == Next::kOfOthers) skipped->insert(group->request().tenant);
  }
  return skipped->size() > num_skipped;
}

void WaitingQueue::ForEach(absl::FunctionRef<void(SequenceGroup*)> call) const {
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [rank, group] : tenant.waiting) call(group);
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
    }
  }
  num_swapped_ = 0;
}

int64_t WaitingQueue::NumTokensAhead(const Request& request) const {
  if (size_ == 0) return 0;
  if (options_.policy == SchedulingPolicy::kPriority) {
    int64_t num_tokens = 0;
    for (const auto& [priority, sum] : tokens_by_priority_) {
      if (priority > request.priority) break;
      num_tokens += sum;
    }
    return num_tokens;
  }
  if (options_.policy != SchedulingPolicy::kFairShare) return num_tokens_;
  // While the tenant is served what waits of it, each other tenant is served in the ratio of the weights.
  const auto own = tenants_.find(request.tenant);
  if (own == tenants_.end()) return 0;
  const double share = static_cast<double>(own->second.num_tokens) / own->second.weight;
  double num_tokens = 0;
  for (const auto& [name, tenant] : tenants_) {
    num_tokens += std::min(static_cast<double>(tenant.num_tokens), share * tenant.weight);
  }
  return static_cast<int64_t>(num_tokens);
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
  if (options_.policy != SchedulingPolicy::kFairShare) return;
  const auto it = tenants_.find(tenant);
  if (it != tenants_.end()) it->second.served += num_tokens / it->second.weight;
}

}  // namespace quire
