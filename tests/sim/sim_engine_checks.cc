// SPDX-License-Identifier: Apache-2.0

// The part of SimEngine that compares the loop with what it must be.

#include "tests/sim/sim_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/num_blocks.h"
#include "base/status.h"
#include "tests/sim/violation.h"

namespace quire {
namespace {

// Largest number of blocks of a pool whose blocks are counted after every call. A pool that is n times as large is
// counted after every n calls.
constexpr int kBlocksPerCheck = 64;

}  // namespace

void SimEngine::CheckAudit(const TableAudit& audit, SimAudit kind) {
  if (ranks_ == nullptr) return;  // The manager is dead.
  if (!std::exchange(is_audit_pending_, false)) Complain("an audit was answered twice");
  const bool is_early = absl::IsDeadlineExceeded(audit.not_compared) && !oracle_.has_session_ended() &&
                        clock_->NowMicros() < audit_deadline_us_;
  audit_deadline_us_ = kNever;
  report_.audits += audit.num_rows > 0;
  const bool has_lied = ranks_->has_lied() && audit.num_rows > 0;
  ranks_->TellTables(SimAudit::kCompare);
  const bool is_of_sequence = kind == SimAudit::kWrongSequence || kind == SimAudit::kRepairWrongSequence;
  const bool repairs = kind == SimAudit::kRepairWrongBlock || kind == SimAudit::kRepairWrongSequence;
  // An entry that the worker was not told yet is not compared. Only a prefix cache changes entries after they are told.
  const bool may_be_unseen = !is_of_sequence && options_.prefix_cache != 0;
  if (is_early) Complain("an audit was given up before its time");
  if (audit.num_differences > has_lied || audit.num_differences + may_be_unseen < has_lied) {
    Complain("an audit has found ", audit.num_differences, " differences, the worker has told ", has_lied, " lies");
  }
  if (audit.num_differences == 0) return;
  const auto expected = is_of_sequence ? RowDifference::Kind::kSequence : RowDifference::Kind::kBlock;
  if (audit.differences.size() != 1 || audit.differences[0].kind != expected || audit.is_repaired != repairs) {
    Complain("an audit tells of another difference than the worker's lie");
  }
  if (is_of_sequence && repairs) {
    oracle_.OnUnrepairable();
    is_unrepairable_ = true;
  }
}

absl::Status SimEngine::CheckRound() {
  QUIRE_RETURN_IF_ERROR(status_);
  QUIRE_RETURN_IF_ERROR(ranks_->status());
  const std::shared_ptr<const WorkerStatus> status = loop_->status();
  const WorkerLoad load = loop_->load();
  QUIRE_RETURN_IF_ERROR(oracle_.EndRound(*status, load, num_live()));
  if (num_unanswered_questions_ != 0) return Violation(num_unanswered_questions_, " questions were not answered");
  const int64_t now_us = clock_->NowMicros();
  if (oracle_.has_session_ended() && is_audit_pending_) return Violation("an audit outlives the session");
  if (audit_deadline_us_ <= now_us) return Violation("an audit waits beyond its deadline");
  for (const RequestId request : must_fail_) {
    if (callers_.contains(request)) return Violation("request ", Value(request), " makes its worker fail and lives on");
  }
  for (const RequestId request : reported_) {
    if (callers_.contains(request))
      return Violation("request ", Value(request), " has failed on its worker and lives on");
  }
  if (next_deadline_us_ <= now_us) return Violation("a request outlives its deadline");
  if (wake_us_ > std::min(next_deadline_us_, audit_deadline_us_))
    return Violation("the loop sleeps through a deadline");
  const bool is_full =
      status->is_ready && status->waiting_requests > 0 && scheduler_ != nullptr && scheduler_->counts().suspects == 0;
  rebalance_.EndRound(is_full, now_us);
  if (blocks_ == nullptr) return absl::OkStatus();
  if (blocks_->first_pin_expiry_us() <= now_us) return Violation("a pin outlives its time");
  if (wake_us_ > blocks_->first_pin_expiry_us()) return Violation("the loop sleeps beyond the time of a pin");
  QUIRE_RETURN_IF_ERROR(CheckLoad(*status, load));
  QUIRE_RETURN_IF_ERROR(blocks_->status());
  const bool is_stuck = status->is_ready && was_plan_empty_ && status->num_plans_in_flight == 0 &&
                        std::any_of(callers_.begin(), callers_.end(),
                                    [](const auto& entry) { return !entry.second.caller->has_left_scheduler(); });
  return is_stuck ? ExplainStall() : CheckBlocks();
}

absl::Status SimEngine::CheckLoad(const WorkerStatus& status, const WorkerLoad& load) const {
  if (load.num_requests != num_live()) return Violation("the load has ", load.num_requests, " of ", num_live());
  if (load.wanted_blocks != num_wanted_blocks_) {
    return Violation("the load wants ", load.wanted_blocks, " blocks, the requests ", num_wanted_blocks_);
  }
  if (load.num_free_blocks != blocks_->num_free_blocks() || load.num_blocks != options_.blocks) {
    return Violation("the load has ", load.num_free_blocks, " free blocks of ", load.num_blocks, ", the pool ",
                     blocks_->num_free_blocks(), " of ", options_.blocks);
  }
  int num_rows = 0;
  for (const auto& [request, live] : callers_) num_rows += NumRows(live.caller->request());
  if (load.num_rows != num_rows) return Violation("the load has ", load.num_rows, " rows of ", num_rows);
  if (status.is_draining != (is_drained_by_operator_ || oracle_.is_worker_draining())) {
    return Violation("the status says is_draining: ", status.is_draining);
  }
  if (scheduler_ == nullptr) return absl::OkStatus();
  const SchedulerCounts counts = scheduler_->counts();
  if (status.waiting_requests != counts.waiting || status.running_requests != counts.running ||
      status.swapped_requests != counts.swapped || status.blocks.used != blocks_->counts().used) {
    return Violation("the status differs from the scheduler");
  }
  if ((counts.waiting == 0) != (counts.waiting_tokens == 0)) {
    return Violation(counts.waiting, " requests wait with ", counts.waiting_tokens, " tokens");
  }
  return absl::OkStatus();
}

std::set<RequestId> SimEngine::Rebalanceable(absl::FunctionRef<bool(const MoveWish&)> has_target) const {
  std::set<RequestId> requests;
  const bool is_leaving = is_drained_by_operator_ || oracle_.is_worker_draining() || ranks_->is_draining();
  if (!rebalance_.is_on() || scheduler_ == nullptr || !is_ready() || is_leaving) return requests;
  if (scheduler_->counts().suspects > 0) return requests;
  for (const auto& [request, live] : callers_) {
    const SequenceGroup* const group = scheduler_->FindGroup(request);
    if (group == nullptr || group->is_running() || group->is_swapped() || group->has_slices_in_flight()) continue;
    if (!RebalanceOracle::MayLeave(live.came_us, clock_->NowMicros())) continue;
    if (has_target({.group = *group, .needs_room = true, .wants_idle = true})) requests.insert(request);
  }
  return requests;
}

absl::Status SimEngine::CheckStaying(const std::set<RequestId>& could_move) {
  const std::set<RequestId> waiting = Rebalanceable([](const MoveWish&) { return true; });
  return rebalance_.CheckStaying(could_move, waiting, clock_->NowMicros());
}

absl::Status SimEngine::ExplainStall() {
  std::string text = "nothing runs, all requests wait:";
  for (const auto& [request, live] : callers_) {
    const std::optional<WaitReason> reason = scheduler_->ExplainWait(request);
    if (!reason.has_value()) return Violation("request ", Value(request), " is live and unknown to the scheduler");
    absl::StrAppend(&text, " request ", Value(request), " for reason ", static_cast<int>(reason->kind), ", ",
                    reason->num_blocks, " of ", reason->num_free_blocks, " free blocks;");
  }
  return Violation(text);
}

absl::Status SimEngine::CheckBlocks() {
  if (!std::exchange(has_changed_, false)) return absl::OkStatus();
  if (++num_unchecked_ * kBlocksPerCheck < options_.blocks) return absl::OkStatus();
  num_unchecked_ = 0;
  ++report_.checks;
  return blocks_->CheckAll();
}

void SimEngine::Digest(const StepPlan& plan) {
  const auto add = [&](uint64_t value) { digest_ = MixBits(digest_ * 3 + value + 1); };
  add(Value(plan.step));
  for (const BlockSwap& swap : plan.swap_outs) add(Value(swap.device) * 65536ull + Value(swap.host));
  for (const BlockSwap& swap : plan.swap_ins) add(Value(swap.device) * 65536ull + Value(swap.host));
  for (const BlockCopy& copy : plan.copies) add(Value(copy.source) * 65536ull + Value(copy.destination));
  for (const SequenceStart& start : plan.starts) add(Value(start.sequence) * 65536 + Value(start.row));
  for (const SequenceFork& fork : plan.forks) add(Value(fork.sequence) * 65536 + Value(fork.row));
  for (const TokenAppend& append : plan.appends) add(Value(append.row) * 65536ull + append.token);
  for (const SequenceSlice& slice : plan.slices) {
    add(Value(slice.row) * 65536ull + slice.first_position);
    add(slice.num_tokens * 65536ull + slice.first_changed_block);
    for (const BlockId block : slice.block_tail) add(Value(block));
  }
}

absl::Status SimEngine::CheckEnd(const CallerTotals& totals, const std::vector<std::shared_ptr<SimCaller>>& callers) {
  QUIRE_RETURN_IF_ERROR(CheckQuiet(totals));
  return options_.prefix_cache != 0 && scheduler_ != nullptr ? CheckCache(callers) : absl::OkStatus();
}

absl::Status SimEngine::CheckQuiet(const CallerTotals& totals) {
  if (scheduler_ == nullptr) {
    // The manager is new, and the worker has not come back.
    if (totals.requests > 0 || !callers_.empty()) return Violation("requests have run without a worker");
    return absl::OkStatus();
  }
  const SchedulerCounts counts = scheduler_->counts();
  if (counts.waiting + counts.running + counts.swapped != 0 || !callers_.empty()) {
    return Violation(counts.waiting, " requests wait, ", counts.running, " run and ", counts.swapped,
                     " are swapped out after the end of all");
  }
  const int num_unowned = blocks_->counts().used - blocks_->counts().pinned;
  if (num_unowned != 0 || blocks_->counts().host_used != 0) {
    return Violation(num_unowned, " blocks and ", blocks_->counts().host_used, " host blocks belong to nobody");
  }
  if (is_audit_pending_) return Violation("an audit was not answered");
  QUIRE_RETURN_IF_ERROR(blocks_->CheckAll());
  return CheckCounts(totals);
}

absl::Status SimEngine::CheckCounts(const CallerTotals& totals) const {
  const std::shared_ptr<const WorkerStatus> status = loop_->status();
  const StepLoopStats& stats = status->stats;
  if (stats.displaced != report_.displaced) return Violation(stats.displaced, " displaced of ", report_.displaced);
  int64_t num_ended = stats.failed + stats.displaced;
  for (const int64_t count : stats.finished) num_ended += count;
  const int64_t num_requests = totals.requests + moved_.requests;
  if (num_ended != num_requests) return Violation(num_ended, " ends of ", num_requests);
  if (stats.finished[static_cast<int>(FinishReason::kDeadline)] != report_.expired ||
      stats.finished[static_cast<int>(FinishReason::kCancelled)] != report_.cancelled ||
      stats.failed != report_.failed) {
    return Violation("ends are counted under another reason");
  }
  const int64_t num_refused =
      stats.refused_never_fits + stats.refused_queue_full + stats.refused_worker_lost + stats.refused_overloaded;
  if (num_refused != report_.refused) return Violation(num_refused, " refusals of ", report_.refused);
  const int64_t num_tokens = totals.tokens + moved_.tokens;
  if (stats.generated_tokens != num_tokens) return Violation(stats.generated_tokens, " tokens of ", num_tokens);
  if (stats.prompt_tokens != totals.prompt_tokens + moved_.prompt_tokens) {
    return Violation("prompt tokens are miscounted");
  }
  if (stats.cached_tokens != totals.cached_tokens + moved_.cached_tokens) {
    return Violation(stats.cached_tokens, " cached tokens of ", totals.cached_tokens + moved_.cached_tokens);
  }
  if (stats.interruptions != oracle_.num_interruptions()) {
    return Violation(stats.interruptions, " interruptions of ", oracle_.num_interruptions());
  }
  if (blocks_->num_adopted_tokens() - num_probed_tokens_ != scheduler_->counts().cached_tokens) {
    return Violation(scheduler_->counts().cached_tokens, " cached tokens counted, ",
                     blocks_->num_adopted_tokens() - num_probed_tokens_, " taken over");
  }
  if (stats.request_pins != report_.pins || stats.failed_request_pins != report_.failed_pins) {
    return Violation(stats.request_pins, " pins of ", report_.pins, ", and ", stats.failed_request_pins, " failed of ",
                     report_.failed_pins);
  }
  if (stats.restored_requests != report_.restored) {
    return Violation(stats.restored_requests, " restored requests of ", report_.restored);
  }
  const SimReport report = Report();
  if (stats.preemptions != report.preemptions || stats.swap_outs != report.swap_outs || stats.forks != report.forks ||
      stats.recomputed_tokens != report.recomputed_tokens || stats.evictions != report.evictions ||
      stats.cow_copies != num_sent_copies_) {
    return Violation("the counters differ from the schedulers and pools");
  }
  return absl::OkStatus();
}

// Every cached block holds the tokens of its path, and every path belongs to some transcript. Only beams that died left
// blocks that are on no transcript. So did requests that another manager had begun, if their clients have not got all
// tokens that the worker computed for them.
absl::Status SimEngine::CheckCache(const std::vector<std::shared_ptr<SimCaller>>& callers) {
  for (const AuditedBlocks::CachedPrefix& prefix : blocks_->CachedPrefixes()) {
    if (!IsOfSession()) break;
    const absl::Status slots = ranks_->memory().CheckSlots(prefix.blocks, prefix.tokens);
    if (!slots.ok()) return Violation("the cache with salt '", prefix.salt, "': ", slots.message());
    report_.walked_blocks += static_cast<int64_t>(prefix.blocks.size());
  }
  std::set<BlockId> found;
  const bool is_all_known = !has_searched_ && num_managers_before_ == 0;
  for (const auto& caller : callers) {
    if (caller->request().bypass_prefix_cache) continue;
    for (int i = 0; i < caller->num_outputs(); ++i) {
      QUIRE_RETURN_IF_ERROR(Probe(caller->request().cache_salt, caller->Transcript(i), &found));
    }
  }
  const int num_cached = blocks_->num_cached_blocks();
  if (loop_->status()->is_ready && is_all_known && num_cached != static_cast<int>(found.size())) {
    return Violation(num_cached, " blocks are cached, ", found.size(), " of them for what requests had");
  }
  return absl::OkStatus();
}

void SimEngine::AddPool(SimReport* report) const {
  const SchedulerCounts counts = scheduler_->counts();
  report->preemptions += counts.preemptions;
  report->swap_outs += counts.swap_outs;
  report->forks += counts.forks;
  report->copies += blocks_->num_copies();
  report->evictions += blocks_->num_evictions();
  report->cached_tokens += counts.cached_tokens;
  report->scheduled_tokens += counts.scheduled_tokens;
  report->recomputed_tokens += counts.recomputed_tokens;
}

SimReport SimEngine::Report() const {
  SimReport report = report_;
  report.tokens = loop_->status()->stats.generated_tokens;
  if (scheduler_ != nullptr) AddPool(&report);
  if (2 * num_crowded_plans_ >= report.plans) {
    report.crowded_scheduled_tokens = report.scheduled_tokens;
    report.crowded_recomputed_tokens = report.recomputed_tokens;
  }
  return report;
}

}  // namespace quire
