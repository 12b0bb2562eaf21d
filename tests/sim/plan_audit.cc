// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/plan_audit.h"

#include <algorithm>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/num_blocks.h"
#include "base/status.h"

namespace quire {
namespace {

// The largest number of plans that may pass before a request for which there is room is admitted.
constexpr int kMaxPlansInVain = 12;

// Requests from other workers have lower numbers.
constexpr uint64_t kFirstSubmitted = uint64_t{1} << 40;

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("plan: ", parts...));
}

int64_t MostBlocks(int64_t num_prompt_tokens, int max_tokens, int num_rows, const CacheGroups& groups) {
  const int block_size = groups.block_size();
  const int64_t num_shared = num_prompt_tokens / block_size;
  const int64_t num_slots = num_prompt_tokens + max_tokens - 1;
  const int64_t num_own = (num_slots + block_size - 1) / block_size - num_shared + WindowBlocks(groups, num_slots);
  return num_shared + num_rows * num_own;
}

// The tokens that a worker computes. A draw that is repeated computes a token again.
int NumComputed(const StepPlan& plan) {
  absl::flat_hash_set<RowId> forks;
  for (const SequenceFork& fork : plan.forks) forks.insert(fork.row);
  const auto num_draws = std::count_if(plan.slices.begin(), plan.slices.end(), [&](const SequenceSlice& slice) {
    return slice.num_tokens == 0 && !forks.contains(slice.row);
  });
  return plan.num_tokens() + static_cast<int>(num_draws);
}

}  // namespace

int64_t MostBlocks(const Request& request, const CacheGroups& groups) {
  return MostBlocks(static_cast<int64_t>(request.prompt.size()), request.max_tokens, NumRows(request), groups);
}

int64_t WindowBlocks(const CacheGroups& groups, int64_t num_tokens) {
  int64_t num_blocks = 0;
  for (int i = 1; i < groups.size(); ++i) {
    num_blocks += groups.group(i).blocks_per_sheet * groups.MaxLiveSheets(i, num_tokens);
  }
  return num_blocks;
}

PlanAudit::PlanAudit(const SimWorker& worker, const AuditedBlocks* blocks)
    : worker_(worker), blocks_(blocks), rows_(worker.rows) {}

bool PlanAudit::goes_by_rank() const {
  const auto policy = static_cast<SchedulingPolicy>(worker_.policy);
  return policy == SchedulingPolicy::kFcfs || policy == SchedulingPolicy::kPriority;
}

void PlanAudit::OnSubmitted(const Request& request) {
  Add(request, kFirstSubmitted + num_submitted_++);
}

void PlanAudit::OnAdopted(const Request& request) {
  Add(request, num_adopted_++);
}

void PlanAudit::OnRestored(const std::vector<Request>& requests) {
  std::vector<std::pair<uint64_t, RequestId>> before;
  for (const auto& [request, live] : live_) before.emplace_back(live.rank.second, request);
  std::sort(before.begin(), before.end());
  for (const Request& request : requests) OnAdopted(request);
  for (const auto& [number, request] : before) live_.at(request).rank.second = num_adopted_++;
}

void PlanAudit::OnRunsOn(RowId row, SequenceId sequence, RequestId request) {
  Occupy(row, sequence, request);
  rows_[Value(row)].has_run = true;
}

void PlanAudit::Add(const Request& request, uint64_t number) {
  const bool has_priority = static_cast<SchedulingPolicy>(worker_.policy) == SchedulingPolicy::kPriority;
  live_[request.id] = {{has_priority ? request.priority : 0, number},
                       static_cast<int>(request.prompt.size()),
                       request.max_tokens,
                       NumRows(request),
                       request.sampling.seed,
                       request.tenant,
                       MostBlocks(request, worker_.Groups())};
  by_seed_[request.sampling.seed] = request.id;
}

void PlanAudit::TakeOver(const PlanAudit& old) {
  std::vector<std::pair<uint64_t, RequestId>> order;
  for (const auto& [request, live] : old.live_) order.emplace_back(live.rank.second, request);
  std::sort(order.begin(), order.end());
  for (const auto& [number, request] : order) {
    const Live& live = old.live_.at(request);
    Live& moved = live_[request] = live;
    moved.rank.second = num_adopted_++;
    moved.most_blocks = MostBlocks(live.num_prompt_tokens, live.max_tokens, live.num_rows, worker_.Groups());
    moved.num_running = 0;
    by_seed_[live.seed] = request;
  }
}

void PlanAudit::OnEnded(RequestId request) {
  live_.erase(request);
}

void PlanAudit::OnReleased(const std::vector<SequenceId>& sequences) {
  for (const SequenceId sequence : sequences) Release(sequence);
}

void PlanAudit::OnAbandoned() {
  running_.clear();
  rows_.assign(rows_.size(), Row());
  for (auto& [request, live] : live_) live.num_running = 0;
  num_plans_in_vain_ = 0;
}

void PlanAudit::Release(SequenceId sequence) {
  const auto it = running_.find(sequence);
  if (it == running_.end()) return;
  const auto live = live_.find(it->second.second);
  if (live != live_.end()) --live->second.num_running;
  running_.erase(it);
}

void PlanAudit::Occupy(RowId row, SequenceId sequence, RequestId request) {
  running_[sequence] = {row, request};
  rows_[Value(row)].sequence = sequence;
  const auto live = live_.find(request);
  if (live != live_.end()) ++live->second.num_running;
}

absl::Status PlanAudit::Check(const StepPlan& plan, const SchedulerCounts& before, const SchedulerCounts& after,
                              const std::vector<SequenceId>& preempted, const std::map<RequestId, int64_t>& blocks_of) {
  QUIRE_RETURN_IF_ERROR(CheckLimits(plan, before, after));
  QUIRE_RETURN_IF_ERROR(CheckVictims(before, after, preempted, blocks_of));
  if (before.suspects == 0) QUIRE_RETURN_IF_ERROR(CheckOrder(plan));
  QUIRE_RETURN_IF_ERROR(EndRows(plan));
  QUIRE_RETURN_IF_ERROR(TakeRows(plan));
  QUIRE_RETURN_IF_ERROR(CheckTables(plan));
  if (before.suspects == 0) QUIRE_RETURN_IF_ERROR(CheckShares(plan, blocks_of));
  return CheckNobodyWaitsInVain(plan, after.preemptions > before.preemptions || before.suspects > 0);
}

bool PlanAudit::HasDecode(const StepPlan& plan) const {
  absl::flat_hash_set<RowId> entered;
  for (const SequenceStart& start : plan.starts) entered.insert(start.row);
  for (const SequenceFork& fork : plan.forks) entered.insert(fork.row);
  return std::any_of(plan.slices.begin(), plan.slices.end(), [&](const SequenceSlice& slice) {
    return slice.num_tokens <= 1 && slice.sample && !entered.contains(slice.row);
  });
}

// By the requests that run before the plan.
int PlanAudit::MaxTokens(const StepPlan& plan) const {
  if (worker_.token_budget == 0) return worker_.step_tokens;
  int num_rows = 0;
  for (const auto& [request, live] : live_) num_rows += live.num_running > 0 ? live.num_rows : 0;
  const int limit = worker_.token_budget * (HasDecode(plan) ? 1 : SimWorker::kPromptStepRatio);
  return std::min(worker_.step_tokens, std::max(limit, num_rows + StepLimit::kMinPromptTokens));
}

absl::Status PlanAudit::CheckLimits(const StepPlan& plan, const SchedulerCounts& before,
                                    const SchedulerCounts& after) const {
  const int max_tokens = MaxTokens(plan);
  const int num_tokens = NumComputed(plan);
  if (num_tokens > max_tokens) return Broken(num_tokens, " tokens, the budget is ", max_tokens);
  if (after.scheduled_tokens - before.scheduled_tokens != plan.num_tokens()) return Broken("its tokens are miscounted");
  if (after.preemptions > before.preemptions && !plan.starts.empty()) return Broken("preempted and admitted");
  if (after.running + after.waiting != num_live()) return Broken("a request is in no queue, or in two");
  for (const SequenceSlice& slice : plan.slices) {
    if (slice.num_tokens > worker_.chunk_tokens) return Broken("a slice of ", slice.num_tokens, " tokens");
  }
  return absl::OkStatus();
}

absl::Status PlanAudit::CheckVictims(const SchedulerCounts& before, const SchedulerCounts& after,
                                     const std::vector<SequenceId>& preempted,
                                     const std::map<RequestId, int64_t>& blocks_of) {
  std::set<RequestId> victims;
  for (const SequenceId sequence : preempted) {
    const auto it = running_.find(sequence);
    if (it != running_.end()) victims.insert(it->second.second);
  }
  OnReleased(preempted);
  if (after.preemptions - before.preemptions != static_cast<int64_t>(victims.size())) {
    return Broken(victims.size(), " requests lost their blocks, ", after.preemptions - before.preemptions, " counted");
  }
  if (victims.empty()) return absl::OkStatus();
  std::map<std::string, int64_t> held = HeldByTenants(blocks_of);
  // What a tenant held when its last victim was chosen is not known, but at most this.
  std::map<std::string, int64_t> held_before = held;
  for (const RequestId victim : victims) held_before[live_.at(victim).tenant] += blocks_of.at(victim);
  bool does_anybody_run = false;
  for (const auto& [request, live] : live_) {
    if (live.num_running == 0) continue;
    does_anybody_run = true;
    const bool is_over = held[live.tenant] > worker_.MaxBlocksOf(live.tenant);
    for (const RequestId victim : victims) {
      const Live& victim_live = live_.at(victim);
      const std::string& tenant = victim_live.tenant;
      const bool was_over = held_before[tenant] > worker_.MaxBlocksOf(tenant);
      if (is_over && !was_over) {
        return Broken("request ", Value(victim), " was preempted within its share, ", Value(request),
                      " continues beyond");
      }
      if (!was_over && victim_live.rank.first < live.rank.first) {
        return Broken("request ", Value(victim), " was preempted, the less urgent ", Value(request), " continues");
      }
    }
  }
  return does_anybody_run ? absl::OkStatus() : Broken("preempted everybody");
}

// Without a cache no request waits for a prefix, so none may be overtaken.
absl::Status PlanAudit::CheckOrder(const StepPlan& plan) const {
  if (plan.starts.empty() || !goes_by_rank() || worker_.prefix_cache != 0) return absl::OkStatus();
  std::set<RequestId> entering;
  for (const SequenceStart& start : plan.starts) {
    const auto it = by_seed_.find(start.sampling.seed);
    if (it != by_seed_.end()) entering.insert(it->second);
  }
  for (const RequestId request : entering) {
    for (const auto& [other, live] : live_) {
      const bool may_be_over_share = worker_.MaxBlocksOf(live.tenant) < worker_.blocks;
      if (may_be_over_share || live.num_running > 0 || entering.contains(other) || live.rank > live_.at(request).rank)
        continue;
      return Broken("request ", Value(request), " overtook ", Value(other));
    }
  }
  return absl::OkStatus();
}

std::map<std::string, int64_t> PlanAudit::HeldByTenants(const std::map<RequestId, int64_t>& blocks_of) const {
  std::map<std::string, int64_t> held;
  for (const auto& [request, live] : live_) {
    if (live.num_running > 0) held[live.tenant] += blocks_of.at(request);
  }
  return held;
}

absl::Status PlanAudit::CheckShares(const StepPlan& plan, const std::map<RequestId, int64_t>& blocks_of) const {
  std::map<std::string, int64_t> held = HeldByTenants(blocks_of);
  for (const SequenceStart& start : plan.starts) {
    const RequestId entered = by_seed_.at(start.sampling.seed);
    const std::string& tenant = live_.at(entered).tenant;
    // A request that is larger than the share runs alone.
    if (held[tenant] <= worker_.MaxBlocksOf(tenant) || held[tenant] == blocks_of.at(entered)) continue;
    return Broken("request ", Value(entered), " has entered, its tenant then holds ", held[tenant], " blocks of ",
                  worker_.MaxBlocksOf(tenant));
  }
  return absl::OkStatus();
}

absl::Status PlanAudit::EndRows(const StepPlan& plan) const {
  for (const RowId row : plan.end_rows) {
    if (Value(row) >= rows_.size()) return Broken("end of row ", Value(row), " of ", rows_.size());
    const auto runner = running_.find(rows_[Value(row)].sequence);
    if (runner == running_.end() || runner->second.first != row) continue;
    return Broken("row ", Value(row), " ends, and sequence ", Value(runner->first), " runs there");
  }
  return absl::OkStatus();
}

absl::Status PlanAudit::TakeRows(const StepPlan& plan) {
  std::vector<std::pair<RowId, SequenceId>> had_before;
  const auto is_row = [&](RowId row) { return Value(row) < rows_.size(); };
  for (const SequenceStart& start : plan.starts) {
    const auto request = by_seed_.find(start.sampling.seed);
    if (!is_row(start.row) || request == by_seed_.end() || !live_.contains(request->second)) {
      return Broken("sequence ", Value(start.sequence), " starts in row ", Value(start.row));
    }
    had_before.emplace_back(start.row, rows_[Value(start.row)].sequence);
    rows_[Value(start.row)].table.clear();
    rows_[Value(start.row)].has_run = false;
    Occupy(start.row, start.sequence, request->second);
  }
  absl::flat_hash_set<RowId> forked;
  for (const SequenceFork& fork : plan.forks) {
    if (!is_row(fork.row) || !is_row(fork.parent) || forked.contains(fork.parent)) {
      return Broken("row ", Value(fork.row), " is forked from row ", Value(fork.parent));
    }
    const auto parent = running_.find(rows_[Value(fork.parent)].sequence);
    if (parent == running_.end() || parent->second.first != fork.parent) {
      return Broken("row ", Value(fork.row), " is forked from row ", Value(fork.parent), ", where nobody runs");
    }
    had_before.emplace_back(fork.row, rows_[Value(fork.row)].sequence);
    rows_[Value(fork.row)].table = rows_[Value(fork.parent)].table;
    rows_[Value(fork.row)].has_run = true;
    const RequestId request = parent->second.second;
    Occupy(fork.row, fork.sequence, request);
    forked.insert(fork.row);
  }
  for (const auto& [row, sequence] : had_before) {
    const auto it = running_.find(sequence);
    if (it == running_.end() || it->second.first != row || rows_[Value(row)].sequence == sequence) continue;
    return Broken("row ", Value(row), " was taken from sequence ", Value(sequence), ", which runs there");
  }
  return absl::OkStatus();
}

absl::Status PlanAudit::CheckTables(const StepPlan& plan) {
  for (const SequenceSlice& slice : plan.slices) {
    if (Value(slice.row) >= rows_.size()) return Broken("row ", Value(slice.row), " of ", rows_.size());
    Row& row = rows_[Value(slice.row)];
    const auto runner = running_.find(row.sequence);
    if (runner == running_.end()) return Broken("row ", Value(slice.row), " belongs to nobody who runs");
    if (!std::exchange(row.has_run, true)) live_.at(runner->second.second).first_position = slice.first_position;
    if (!blocks_->HoldsBlocks(row.sequence)) return Broken("sequence ", Value(row.sequence), " holds no blocks");
    if (slice.first_changed_block > static_cast<int>(row.table.size())) return Broken("a table with a hole");
    row.table.resize(slice.first_changed_block);
    for (const BlockId block : slice.block_tail) row.table.push_back({block, blocks_->generation(block)});
    const int num_read = NumBlocksFor(slice.first_position + slice.num_tokens, worker_.block_size);
    if (num_read > static_cast<int>(row.table.size())) return Broken("a table of ", row.table.size(), " blocks");
    for (int i = 0; i < num_read; ++i) {
      const Entry& entry = row.table[i];
      if (entry.generation == blocks_->generation(entry.block)) continue;
      return Broken("sequence ", Value(row.sequence), " reads block ", Value(entry.block),
                    ", which was handed out to somebody else");
    }
  }
  return absl::OkStatus();
}

absl::Status PlanAudit::CheckNobodyWaitsInVain(const StepPlan& plan, bool has_preempted) {
  if (plan.empty()) return absl::OkStatus();
  const int watermark_blocks = (worker_.watermark_percent * worker_.blocks + 99) / 100;
  const int num_free = blocks_->num_free_blocks() - watermark_blocks;
  int num_rows = 0;
  bool does_anybody_wait = false;  // Without tenants whose requests may hold more than their share.
  bool does_everybody_fit = true;
  std::map<std::string, int64_t> wanted;
  for (const auto& [request, live] : live_) wanted[live.tenant] += live.most_blocks;
  for (const auto& [request, live] : live_) {
    num_rows += live.num_rows;
    if (live.num_running > 0) continue;
    does_anybody_wait |= wanted[live.tenant] <= worker_.MaxBlocksOf(live.tenant);
    if (live.most_blocks > num_free) does_everybody_fit = false;
  }
  const bool is_in_vain = does_anybody_wait && does_everybody_fit && num_rows <= worker_.rows && plan.starts.empty() &&
                          !has_preempted && NumComputed(plan) < worker_.step_tokens && worker_.token_budget == 0 &&
                          worker_.prefix_cache == 0 && worker_.is_static == 0 && worker_.served_percent == 0;
  num_plans_in_vain_ = is_in_vain ? num_plans_in_vain_ + 1 : 0;
  if (num_plans_in_vain_ <= kMaxPlansInVain) return absl::OkStatus();
  return Broken("for ", num_plans_in_vain_, " steps requests wait although all of them fit");
}

}  // namespace quire
