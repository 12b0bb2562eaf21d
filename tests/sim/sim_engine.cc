#include "tests/sim/sim_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

// All blocks are counted after every call when there are so few, and after as many calls as there are times more.
constexpr int kBlocksPerCheck = 64;

template <typename... Parts>
absl::Status Violation(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

PagedBlockManagerOptions Indexed(PagedBlockManagerOptions options, PrefixIndex* index) {
  options.index = index;
  return options;
}

}  // namespace

SimEngine::SimEngine(const SimWorker& worker, const ShadowModel& model)
    : options_(worker),
      model_(model),
      index_(worker.block_size),
      blocks_(Indexed(worker.BlockOptions(), &index_)),
      scheduler_(worker.Options(), &blocks_),
      audit_(worker, &blocks_),
      live_(&stats_) {
  if (worker.token_budget > 0) scheduler_.SetTokenBudget(worker.token_budget);
  Return();
}

absl::Status SimEngine::Submit(std::shared_ptr<SimCaller> caller, int64_t deadline, int64_t now) {
  const Request& request = caller->request();
  const int64_t num_tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  const bool fits_pool =
      NumRows(request) <= options_.rows && MostBlocks(request, options_.block_size) <= options_.blocks;
  const bool has_queue = scheduler_.counts().waiting < options_.queue;
  const absl::StatusCode expected = num_tokens > options_.context ? absl::StatusCode::kInvalidArgument
                                    : !fits_pool                  ? absl::StatusCode::kFailedPrecondition
                                    : !has_queue                  ? absl::StatusCode::kResourceExhausted
                                                                  : absl::StatusCode::kOk;
  ++report_.events;
  const absl::Status status = scheduler_.Submit(request);
  if (status.code() != expected) return Violation("submission of ", num_tokens, " tokens: ", status.ToString());
  if (!status.ok()) {
    ++report_.refused;
    caller->End();
    return absl::OkStatus();
  }
  ++report_.requests;
  report_.searches += request.beam.has_value();
  has_searched_ |= request.beam.has_value();
  LiveRequests::Entry entry{
      .sink = caller,
      .arrival_us = now,
      .deadline_us = deadline,
      .wanted_blocks = BlocksWanted(static_cast<int>(request.prompt.size()), options_.block_size)};
  live_.Add(request.id, std::move(entry));
  PromptHashes hashes(request.cache_salt, request.prompt);
  if (!request.bypass_prefix_cache) index_.Expect(request.id, &hashes);
  audit_.OnSubmitted(request);
  callers_.emplace(request.id, std::move(caller));
  return absl::OkStatus();
}

absl::Status SimEngine::Cancel(SimCaller* caller) {
  const RequestId request = caller->request().id;
  const bool is_live = !caller->has_ended();
  ++report_.events;
  if (live_.Drop(request, FinishReason::kCancelled, /*now_us=*/0) != is_live)
    return Violation("cancel of request ", Value(request));
  if (scheduler_.Cancel(request) != is_live) return Violation("the scheduler's cancel of request ", Value(request));
  if (!is_live) return absl::OkStatus();
  caller->End();
  ++report_.cancelled;
  return CheckCallers();
}

// As the token stream does: it ends samples one by one, and with the last of them the request.
absl::Status SimEngine::CancelSample(SimCaller* caller, int sample_index) {
  if (!caller->MayEndSample(sample_index)) return absl::OkStatus();
  const RequestId request = caller->request().id;
  ++report_.events;
  if (!scheduler_.CancelSample(request, sample_index)) return Violation("cancel of a sample of ", Value(request));
  caller->EndSample(sample_index);
  if (caller->has_ended() && !live_.Drop(request, FinishReason::kStopToken, /*now_us=*/0)) {
    return Violation("request ", Value(request), " was not live");
  }
  return CheckCallers();
}

absl::Status SimEngine::Expire(int64_t now) {
  if (live_.next_deadline_us() > now) return absl::OkStatus();
  ++report_.events;
  for (const RequestId request : live_.Expire(now)) {
    ++report_.expired;
    if (!scheduler_.Cancel(request)) return Violation("request ", Value(request), " expired after its end");
  }
  return CheckCallers();
}

absl::Status SimEngine::Plan() {
  if (!has_worker() || is_full()) return absl::OkStatus();
  ++report_.events;
  audit_.OnReleased(blocks_.TakeReleased());
  const SchedulerCounts before = scheduler_.counts();
  StepPlan plan = scheduler_.Plan();
  const SchedulerCounts after = scheduler_.counts();
  QUIRE_RETURN_IF_ERROR(blocks_.status());
  QUIRE_RETURN_IF_ERROR(audit_.Check(plan, before, after, blocks_.TakeReleased()));
  if (plan.empty()) {
    const bool is_stuck = !is_busy() && num_live() > 0;
    return is_stuck ? ExplainStall() : CheckBlocks();
  }
  Digest(plan);
  ++report_.plans;
  report_.events += static_cast<int64_t>(plan.slices.size());
  num_crowded_plans_ += after.waiting > 0;
  in_flight_.push_back(std::move(plan));
  return CheckBlocks();
}

absl::Status SimEngine::Commit() {
  if (!is_busy()) return absl::OkStatus();
  ++report_.events;
  absl::StatusOr<StepResult> result = worker_->Execute(in_flight_.front());
  if (!result.ok()) return result.status();
  in_flight_.pop_front();
  QUIRE_RETURN_IF_ERROR(scheduler_.CheckResult(*result));
  last_result_ = *result;
  StepOutput output = scheduler_.Commit(*std::move(result));
  for (const Started& started : output.started) {
    const int first_position = audit_.first_position(started.request);
    if (started.num_cached_tokens == first_position) continue;
    return Violation("request ", Value(started.request), " began at position ", first_position, " with ",
                     started.num_cached_tokens, " cached tokens");
  }
  live_.Deliver(std::move(output), 0, 0);
  QUIRE_RETURN_IF_ERROR(blocks_.status());
  return CheckCallers();
}

absl::Status SimEngine::ExplainStall() {
  std::string text = "nothing runs, all requests wait:";
  for (const auto& [request, caller] : callers_) {
    const std::optional<WaitReason> reason = scheduler_.ExplainWait(request);
    if (!reason.has_value()) return Violation("request ", Value(request), " is live and unknown to the scheduler");
    absl::StrAppend(&text, " request ", Value(request), " for reason ", static_cast<int>(reason->kind), ", ",
                    reason->num_blocks, " of ", reason->num_free_blocks, " free blocks;");
  }
  return Violation(text);
}

void SimEngine::Lose() {
  if (!has_worker()) return;
  ++report_.events;
  ++report_.losses;
  worker_.reset();
  in_flight_.clear();
  last_result_.reset();
  scheduler_.AbandonAll();
  audit_.OnAbandoned();
  blocks_.TakeReleased();
}

void SimEngine::Return() {
  if (has_worker()) return;
  worker_.emplace(model_, options_.blocks, options_.block_size, options_.rows, options_.host_blocks);
}

absl::Status SimEngine::RepeatLastResult() const {
  if (!last_result_.has_value() || !scheduler_.CheckResult(*last_result_).ok()) return absl::OkStatus();
  return Violation("the result of step ", Value(last_result_->step), " was accepted twice");
}

// Calls that end requests or steps: what they told the callers, and what they left.
absl::Status SimEngine::CheckCallers() {
  for (const RequestId request : live_.TakeEnded()) {
    const auto it = callers_.find(request);
    if (it == callers_.end()) return Violation("an unknown request ended");
    QUIRE_RETURN_IF_ERROR(it->second->status());
    if (!it->second->has_ended()) return Violation("request ", Value(request), " was forgotten");
    audit_.OnEnded(request);
    index_.Forget(request);
    callers_.erase(it);
  }
  for (const auto& [request, caller] : callers_) {
    QUIRE_RETURN_IF_ERROR(caller->status());
    if (caller->has_ended()) return Violation("request ", Value(request), " has ended and is still live");
  }
  QUIRE_RETURN_IF_ERROR(blocks_.status());
  return CheckBlocks();
}

absl::Status SimEngine::CheckBlocks() {
  if (++num_unchecked_ * kBlocksPerCheck < options_.blocks) return absl::OkStatus();
  num_unchecked_ = 0;
  ++report_.checks;
  return blocks_.CheckAll();
}

absl::Status SimEngine::Probe(const std::string& salt, std::vector<TokenId> tokens, std::set<BlockId>* found) {
  if (!has_worker() || is_busy()) return absl::OkStatus();
  tokens.push_back(-1);  // The last token is never looked for.
  const PrefixHit hit = blocks_.FindPrefix(salt, tokens);
  const SequenceId sequence{++probe_};
  blocks_.AdoptPrefix(sequence, salt, tokens, hit.num_tokens);
  const absl::Span<const BlockId> table = blocks_.Table(sequence);
  const absl::Status status = worker_->CheckSlots(table, absl::MakeConstSpan(tokens).first(hit.num_tokens));
  if (!status.ok()) return Violation("the cache with salt '", salt, "': ", status.message());
  found->insert(table.begin(), table.end());
  report_.probed_blocks += static_cast<int64_t>(table.size());
  num_probed_tokens_ += hit.num_tokens;
  blocks_.Free(sequence);
  PromptHashes hashes(salt, tokens);
  const int num_indexed = index_.NumTokens(&hashes);
  if (num_live() == 0 ? num_indexed != hit.num_block_tokens : num_indexed < hit.num_block_tokens) {
    return Violation(hit.num_block_tokens, " tokens are cached, ", num_indexed, " by the index");
  }
  return blocks_.status();
}

WorkerLoad SimEngine::Load(const Request& request) const {
  const bool may_start_cached = options_.prefix_cache != 0 && !request.bypass_prefix_cache;
  PromptHashes hashes(request.cache_salt, request.prompt);
  return {.is_ready = has_worker(),
          .may_return = !has_worker(),
          .block_size = options_.block_size,
          .num_blocks = options_.blocks,
          .num_free_blocks = blocks_.num_free_blocks(),
          .wanted_blocks = live_.wanted_blocks(),
          .num_requests = live_.size(),
          .max_sequences = options_.rows,
          .num_cached_tokens = may_start_cached ? index_.NumTokens(&hashes) : 0};
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

absl::Status SimEngine::CheckEnd(const std::vector<std::shared_ptr<SimCaller>>& callers) {
  const SchedulerCounts counts = scheduler_.counts();
  if (counts.waiting + counts.running + counts.swapped != 0 || !callers_.empty()) {
    return Violation(counts.waiting, " requests wait, ", counts.running, " run and ", counts.swapped,
                     " are swapped out after the end of all");
  }
  if (blocks_.counts().used != 0 || blocks_.counts().host_used != 0) {
    return Violation(blocks_.counts().used, " blocks and ", blocks_.counts().host_used,
                     " host blocks belong to nobody");
  }
  QUIRE_RETURN_IF_ERROR(blocks_.CheckAll());
  QUIRE_RETURN_IF_ERROR(CheckCounts(callers));
  return options_.prefix_cache != 0 ? CheckCache(callers) : absl::OkStatus();
}

absl::Status SimEngine::CheckCounts(const std::vector<std::shared_ptr<SimCaller>>& callers) const {
  int64_t num_tokens = 0;
  int64_t num_cached = 0;
  for (const auto& caller : callers) {
    num_tokens += caller->num_tokens();
    num_cached += caller->num_cached_tokens();
  }
  int64_t num_finished = stats_.failed;
  for (const int64_t count : stats_.finished) num_finished += count;
  if (num_finished != static_cast<int64_t>(callers.size())) return Violation(num_finished, " ends of ", callers.size());
  if (stats_.finished[static_cast<int>(FinishReason::kDeadline)] != report_.expired ||
      stats_.finished[static_cast<int>(FinishReason::kCancelled)] != report_.cancelled) {
    return Violation("ends are counted under another reason");
  }
  if (stats_.generated_tokens != num_tokens) return Violation(stats_.generated_tokens, " tokens of ", num_tokens);
  if (stats_.cached_tokens != num_cached) return Violation(stats_.cached_tokens, " cached tokens of ", num_cached);
  if (blocks_.num_adopted_tokens() - num_probed_tokens_ != scheduler_.counts().cached_tokens) {
    return Violation(scheduler_.counts().cached_tokens, " cached tokens counted, ",
                     blocks_.num_adopted_tokens() - num_probed_tokens_, " taken over");
  }
  if (live_.wanted_blocks() != 0) return Violation(live_.wanted_blocks(), " blocks are wanted by nobody");
  return absl::OkStatus();
}

// Every cached block is on the path of some transcript. Beams that died left blocks that are on no path.
absl::Status SimEngine::CheckCache(const std::vector<std::shared_ptr<SimCaller>>& callers) {
  std::set<BlockId> found;
  for (const auto& caller : callers) {
    if (caller->request().bypass_prefix_cache) continue;
    for (int i = 0; i < caller->num_outputs(); ++i) {
      QUIRE_RETURN_IF_ERROR(Probe(caller->request().cache_salt, caller->Transcript(i), &found));
    }
  }
  const int num_cached = blocks_.counts().evictable;
  if (has_worker() && !has_searched_ && num_cached != static_cast<int>(found.size())) {
    return Violation(num_cached, " blocks are cached, ", found.size(), " of them for what requests had");
  }
  return absl::OkStatus();
}

SimReport SimEngine::Report() const {
  SimReport report = report_;
  const SchedulerCounts counts = scheduler_.counts();
  report.tokens = stats_.generated_tokens;
  report.preemptions = counts.preemptions;
  report.swap_outs = counts.swap_outs;
  report.forks = counts.forks;
  report.copies = blocks_.num_copies();
  report.evictions = blocks_.num_evictions();
  report.cached_tokens = counts.cached_tokens;
  report.scheduled_tokens = counts.scheduled_tokens;
  report.recomputed_tokens = counts.recomputed_tokens;
  if (2 * num_crowded_plans_ >= report.plans) {
    report.crowded_scheduled_tokens = counts.scheduled_tokens;
    report.crowded_recomputed_tokens = counts.recomputed_tokens;
  }
  return report;
}

}  // namespace quire
