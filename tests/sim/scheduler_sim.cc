#include "tests/sim/scheduler_sim.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr int kMaxEvents = 20000;  // A run that takes longer goes nowhere.

template <typename... Parts>
absl::Status Violation(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

}  // namespace

SchedulerSim::SchedulerSim(uint64_t seed) : random_(seed) {
  DrawWorld();
  blocks_ = std::make_unique<PagedBlockManager>(num_blocks_, block_size_);
  scheduler_ = std::make_unique<Scheduler>(options_, blocks_.get());
  worker_ = std::make_unique<ShadowWorker>(model_, num_blocks_, block_size_, options_.max_sequences);
}

void SchedulerSim::DrawWorld() {
  num_blocks_ = random_.OneIn(4) ? random_.Between(4, 256) : random_.Between(4, 24);
  block_size_ = random_.OneIn(2) ? random_.Between(1, 32) : random_.Between(1, 4);
  options_.policy = random_.OneIn(2) ? SchedulingPolicy::kPriority : SchedulingPolicy::kFcfs;
  options_.max_tokens_per_step = random_.OneIn(2) ? random_.Between(1, 16) : random_.Between(16, 256);
  options_.max_chunk_tokens = random_.OneIn(2) ? random_.Between(1, 8) : random_.Between(8, 128);
  options_.max_sequences = random_.Between(1, 16);
  options_.max_waiting_requests = random_.OneIn(4) ? random_.Between(1, 4) : 100;
  options_.max_context_tokens = random_.Between(2, 200);
  options_.watermark = random_.OneIn(2) ? 0.01 * random_.Between(0, 60) : 0.01;
  options_.max_plans_in_flight = random_.Between(1, 2);
  model_.vocab_size = random_.OneIn(4) ? 3 : 1000;
  model_.stop_percent = random_.OneIn(3) ? random_.Between(1, 40) : 0;
  num_requests_ = random_.Between(1, 24);
  loss_period_ = random_.OneIn(3) ? random_.Between(5, 60) : 0;
}

absl::Status SchedulerSim::Run() {
  int num_submitted = 0;
  for (int event = 0; event < kMaxEvents; ++event) {
    if (num_submitted == num_requests_ && num_live() == 0 && in_flight_.empty()) return CheckEnd();
    now_us_ += random_.Between(0, 20);
    if (num_submitted < num_requests_ && random_.OneIn(3)) {
      ++num_submitted;
      QUIRE_RETURN_IF_ERROR(Submit());
    }
    if (random_.OneIn(40)) QUIRE_RETURN_IF_ERROR(CancelSomeone());
    if (loss_period_ > 0 && random_.OneIn(loss_period_)) LoseWorker();
    const bool has_place = static_cast<int>(in_flight_.size()) < options_.max_plans_in_flight;
    if (has_place && (in_flight_.empty() || !random_.OneIn(4))) QUIRE_RETURN_IF_ERROR(Plan());
    const bool is_full = static_cast<int>(in_flight_.size()) == options_.max_plans_in_flight;
    if (!in_flight_.empty() && (is_full || random_.OneIn(2))) QUIRE_RETURN_IF_ERROR(Commit());
    QUIRE_RETURN_IF_ERROR(blocks_->CheckIntegrity());
  }
  return Violation(num_live(), " requests have not ended after ", kMaxEvents, " events");
}

Request SchedulerSim::DrawRequest() {
  Request request;
  request.id = RequestId{next_request_++};
  const int prompt_length = random_.OneIn(3) ? random_.Between(1, 150) : random_.Between(1, 20);
  const TokenId same = random_.Between(1, 999);
  const bool is_repetitive = random_.OneIn(4);  // Equal tokens at all positions are the easiest to mix up.
  for (int i = 0; i < prompt_length; ++i) request.prompt.push_back(is_repetitive ? same : random_.Between(1, 999));
  request.max_tokens = random_.OneIn(4) ? random_.Between(1, 100) : random_.Between(1, 20);
  request.priority = random_.Between(-2, 2);
  request.sampling.seed = random_.Next();
  if (random_.OneIn(2)) request.stop_token_ids = {ShadowModel::kStopToken};
  if (random_.OneIn(3)) request.sampling.num_prompt_logprobs = 0;
  if (random_.OneIn(6)) request.deadline_us = now_us_ + random_.Between(0, 800);
  return request;
}

absl::Status SchedulerSim::Submit() {
  const Request request = DrawRequest();
  const int64_t num_tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  const bool fits_context = num_tokens <= options_.max_context_tokens;
  const bool fits_pool = num_tokens - 1 <= static_cast<int64_t>(num_blocks_) * block_size_;
  const bool has_queue = scheduler_->counts().waiting < options_.max_waiting_requests;
  const absl::StatusCode expected = !fits_context ? absl::StatusCode::kInvalidArgument
                                    : !fits_pool  ? absl::StatusCode::kFailedPrecondition
                                    : !has_queue  ? absl::StatusCode::kResourceExhausted
                                                  : absl::StatusCode::kOk;
  const absl::Status status = scheduler_->Submit(request);
  if (status.code() != expected) return Violation("submission of ", num_tokens, " tokens: ", status.ToString());
  if (status.ok()) callers_[request.id] = {request, SoloRun(model_, request)};
  return absl::OkStatus();
}

absl::Status SchedulerSim::CancelSomeone() {
  const RequestId request{static_cast<uint64_t>(random_.Between(1, static_cast<int>(next_request_)))};
  Caller* caller = Find(request);
  const bool is_live = caller != nullptr && !caller->has_ended;
  if (scheduler_->Cancel(request) != is_live) return Violation("cancel of request ", Value(request));
  if (is_live) caller->has_ended = true;
  return absl::OkStatus();
}

void SchedulerSim::LoseWorker() {
  ++num_losses_;
  in_flight_.clear();
  scheduler_->AbandonAll();
  worker_ = std::make_unique<ShadowWorker>(model_, num_blocks_, block_size_, options_.max_sequences);
}

absl::Status SchedulerSim::Plan() {
  const SchedulerCounts before = scheduler_->counts();
  StepPlan plan = scheduler_->Plan(now_us_);
  for (const Finished& finished : scheduler_->TakeFinished()) {
    Caller* caller = Find(finished.request);
    if (finished.reason != FinishReason::kDeadline) return Violation("finished in Plan for another reason");
    if (caller->request.deadline_us >= now_us_) return Violation("finished before its deadline");
    QUIRE_RETURN_IF_ERROR(CheckFinished(finished));
    ++num_expired_;
  }
  plans_.push_back(plan);
  QUIRE_RETURN_IF_ERROR(CheckPlan(plan, before));
  if (!plan.slices.empty()) in_flight_.push_back(std::move(plan));
  return absl::OkStatus();
}

absl::Status SchedulerSim::Commit() {
  absl::StatusOr<StepResult> result = worker_->Execute(in_flight_.front());
  if (!result.ok()) return result.status();
  in_flight_.pop_front();
  return CheckOutput(scheduler_->Commit(*std::move(result)));
}

absl::Status SchedulerSim::CheckPlan(const StepPlan& plan, const SchedulerCounts& before) const {
  const SchedulerCounts after = scheduler_->counts();
  if (plan.num_tokens() > options_.max_tokens_per_step) return Violation("plan of ", plan.num_tokens(), " tokens");
  if (after.scheduled_tokens - before.scheduled_tokens != plan.num_tokens()) return Violation("tokens miscounted");
  if (after.preemptions > before.preemptions && !plan.starts.empty()) {
    return Violation("step ", Value(plan.step), " preempted and admitted");
  }
  if (after.running > options_.max_sequences) return Violation(after.running, " sequences run");
  if (after.running + after.waiting != num_live()) return Violation("a request is in no queue, or in two");
  absl::flat_hash_set<RowId> rows;
  for (const SequenceSlice& slice : plan.slices) {
    if (slice.num_tokens > options_.max_chunk_tokens) return Violation("slice of ", slice.num_tokens, " tokens");
    if (!rows.insert(slice.row).second) return Violation("two slices of row ", Value(slice.row));
  }
  if (plan.slices.empty() && in_flight_.empty() && num_live() > 0) {
    return Violation("nothing runs, ", after.waiting, " requests wait");
  }
  return absl::OkStatus();
}

absl::Status SchedulerSim::CheckOutput(const StepOutput& output) {
  for (RequestId request : output.started) {
    if (std::exchange(Find(request)->has_started, true)) return Violation("started twice");
  }
  for (const PromptLogprobs& logprobs : output.prompt_logprobs) {
    Caller* caller = Find(logprobs.request);
    if (caller->has_ended) return Violation("prompt logprobs of an ended request");
    if (logprobs.tokens.empty() || logprobs.first_position != 1 + static_cast<int>(caller->prompt_logprobs.size())) {
      return Violation("prompt logprobs from ", logprobs.first_position);
    }
    caller->prompt_logprobs.insert(caller->prompt_logprobs.end(), logprobs.tokens.begin(), logprobs.tokens.end());
  }
  for (const Emission& emission : output.emissions) {
    Caller* caller = Find(emission.request);
    if (caller->has_ended) return Violation("emission of an ended request");
    if (!caller->has_started) return Violation("emission before the start");
    const size_t index = caller->tokens.size();
    if (emission.position != static_cast<int>(caller->request.prompt.size() + index)) {
      return Violation("position ", emission.position, " after ", index, " tokens");
    }
    if (index >= caller->solo.tokens.size() || emission.token.token != caller->solo.tokens[index]) {
      return Violation("token ", emission.token.token, " at position ", emission.position,
                       " is not that of a solo run");
    }
    caller->tokens.push_back(emission.token.token);
  }
  for (const Finished& finished : output.finished) {
    const Caller* caller = Find(finished.request);
    if (finished.reason != caller->solo.reason) return Violation("finished for another reason than in a solo run");
    if (caller->tokens != caller->solo.tokens) return Violation("finished after ", caller->tokens.size(), " tokens");
    if (caller->request.sampling.num_prompt_logprobs >= 0 && caller->prompt_logprobs != caller->solo.prompt_logprobs) {
      return Violation("prompt logprobs differ from those of a solo run");
    }
    QUIRE_RETURN_IF_ERROR(CheckFinished(finished));
  }
  return absl::OkStatus();
}

absl::Status SchedulerSim::CheckFinished(const Finished& finished) {
  if (std::exchange(Find(finished.request)->has_ended, true)) return Violation("finished twice");
  return absl::OkStatus();
}

absl::Status SchedulerSim::CheckEnd() const {
  const SchedulerCounts counts = scheduler_->counts();
  if (counts.waiting + counts.running != 0) return Violation("requests are left");
  if (blocks_->counts().used != 0) return Violation(blocks_->counts().used, " blocks are used by nobody");
  return absl::OkStatus();
}

SchedulerSim::Caller* SchedulerSim::Find(RequestId request) {
  auto it = callers_.find(request);
  return it == callers_.end() ? nullptr : &it->second;
}

int SchedulerSim::num_live() const {
  return std::count_if(callers_.begin(), callers_.end(), [](const auto& entry) { return !entry.second.has_ended; });
}

}  // namespace quire
