#include "scheduler/scheduler.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "scheduler/admission.h"
#include "scheduler/stop.h"

namespace quire {
namespace {

constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

// Logprobs that the worker returns for tokens [first, first + num_tokens): each belongs to the token after.
int NumPromptLogprobs(const Request& request, int first, int num_tokens) {
  if (request.sampling.num_prompt_logprobs < 0) return 0;
  return std::clamp(static_cast<int>(request.prompt.size()) - 1 - first, 0, num_tokens);
}

auto ByRank(const ServiceRank& rank) {
  return [&rank](const SequenceGroup* group) { return group->rank() < rank; };
}

}  // namespace

struct Scheduler::Draft {
  struct Slice {
    SequenceGroup* group;
    Sequence* sequence;
    int num_tokens;
  };

  StepPlan plan;
  std::vector<Slice> slices;  // Their slots are writable.
  int budget = 0;             // Tokens left.
  int64_t num_start_tokens = 0;
  bool has_preempted = false;
};

Scheduler::Scheduler(const SchedulerOptions& options, BlockManager* blocks)
    : options_(options),
      blocks_(blocks),
      watermark_blocks_(WatermarkBlocks(options.watermark, blocks->num_blocks())),
      free_rows_(options.max_sequences) {
  const absl::Status status = CheckSchedulerOptions(options);
  QUIRE_CHECK(status.ok()) << status;
}

absl::Status Scheduler::Submit(Request request) {
  QUIRE_RETURN_IF_ERROR(CheckCanEverFit(request, options_, *blocks_));
  if (groups_.contains(request.id)) {
    return absl::AlreadyExistsError(absl::StrCat("request ", Value(request.id), " is already known"));
  }
  if (waiting_.size() >= static_cast<size_t>(options_.max_waiting_requests)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " requests wait, the limit is ", options_.max_waiting_requests));
  }
  const uint64_t submission = num_submitted_++;
  const int priority = options_.policy == SchedulingPolicy::kPriority ? request.priority : 0;
  auto group = std::make_unique<SequenceGroup>(std::move(request), ServiceRank{priority, submission},
                                               SequenceId{submission + 1});
  waiting_.emplace(group->rank(), group.get());
  const int64_t deadline_us = group->request().deadline_us;
  if (deadline_us != kNoDeadline) deadlines_.emplace(std::pair(deadline_us, submission), group.get());
  groups_.emplace(group->id(), std::move(group));
  return absl::OkStatus();
}

bool Scheduler::Cancel(RequestId request) {
  SequenceGroup* group = Find(request);
  if (group == nullptr) return false;
  Remove(group);
  return true;
}

StepPlan Scheduler::Plan(int64_t now_us) {
  QUIRE_CHECK_LT(num_plans_in_flight(), options_.max_plans_in_flight);
  FinishExpired(now_us);
  blocks_->BeginStep(next_step_);
  Draft draft;
  draft.plan.step = next_step_;
  draft.budget = options_.max_tokens_per_step;
  PlanRunning(&draft);
  if (!draft.has_preempted) PlanWaiting(&draft);
  return Complete(std::move(draft));
}

void Scheduler::FinishExpired(int64_t now_us) {
  while (!deadlines_.empty() && deadlines_.begin()->first.first < now_us) {
    SequenceGroup* group = deadlines_.begin()->second;
    for (const Sequence& sequence : group->sequences()) {
      finished_.push_back({group->id(), sequence.sample_index(), FinishReason::kDeadline});
    }
    Remove(group);
  }
}

void Scheduler::PlanRunning(Draft* draft) {
  draft->slices.reserve(running_.size());
  int num_unserved = static_cast<int>(running_.size());
  for (SequenceGroup* group : running_) {
    --num_unserved;
    for (Sequence& sequence : group->sequences()) {
      if (!group->is_running) break;
      // A chunk leaves a token of the budget to everyone after it: prefill never stops a decode.
      const int fair_budget = std::min(draft->budget, std::max(draft->budget - num_unserved, 1));
      const int num_tokens = std::min({sequence.num_uncomputed_tokens(), options_.max_chunk_tokens, fair_budget});
      if (num_tokens <= 0 || !Reserve(*group, sequence, num_tokens, draft)) continue;
      draft->slices.push_back({group, &sequence, num_tokens});
      draft->budget -= num_tokens;
    }
  }
  if (draft->has_preempted) std::erase_if(running_, [](const SequenceGroup* group) { return !group->is_running; });
}

bool Scheduler::Reserve(const SequenceGroup& group, const Sequence& sequence, int num_tokens, Draft* draft) {
  const int first = sequence.num_computed_tokens();
  while (!blocks_->Allocate(sequence.id(), first, first + num_tokens, &draft->plan.copies)) {
    SequenceGroup* victim = CheapestVictim(running_);
    if (victim == nullptr) return false;
    Preempt(victim, draft);
    if (victim == &group) return false;
  }
  return true;
}

// Leaves the group in running_, marked: PlanRunning walks over it.
void Scheduler::Preempt(SequenceGroup* group, Draft* draft) {
  std::erase_if(draft->slices, [&](const Draft::Slice& slice) {
    if (slice.group != group) return false;
    draft->budget += slice.num_tokens;
    return true;
  });
  draft->has_preempted = true;
  ++preemptions_;
  ReleaseMemory(group);
  waiting_.emplace(group->rank(), group);
}

void Scheduler::PlanWaiting(Draft* draft) {
  while (draft->budget > 0 && !waiting_.empty()) {
    SequenceGroup* group = waiting_.begin()->second;
    int64_t num_start_tokens = draft->num_start_tokens;
    for (const Sequence& sequence : group->sequences()) {
      num_start_tokens += NumStartTokens(group->request(), sequence.num_known_tokens());
    }
    const bool is_too_large = !draft->plan.starts.empty() && num_start_tokens > kMaxStartTokens;
    if (is_too_large || !CanEnter(*group)) break;  // Nobody overtakes: the first one would starve.
    Enter(group, draft);
    draft->num_start_tokens = num_start_tokens;
  }
}

bool Scheduler::CanEnter(const SequenceGroup& group) const {
  // Preempted a moment ago: tokens that its rows must start with are still on their way.
  if (group.has_slices_in_flight()) return false;
  if (free_rows_.size() < static_cast<int>(group.sequences().size())) return false;
  int num_needed = 0;
  for (const Sequence& sequence : group.sequences()) {
    num_needed += blocks_->NumBlocksNeeded(sequence.id(), 0, sequence.num_known_tokens());
  }
  return HasRoom(num_needed, blocks_->num_free_blocks(), watermark_blocks_, running_.empty());
}

// Takes the blocks of the whole context at once: what is promised to one request is not free for the next.
void Scheduler::Enter(SequenceGroup* group, Draft* draft) {
  waiting_.erase(group->rank());
  running_.insert(std::partition_point(running_.begin(), running_.end(), ByRank(group->rank())), group);
  group->is_running = true;
  for (Sequence& sequence : group->sequences()) {
    const bool has_room = blocks_->Allocate(sequence.id(), 0, sequence.num_known_tokens(), &draft->plan.copies);
    QUIRE_CHECK(has_room) << sequence.id() << " was admitted into " << blocks_->num_free_blocks() << " free blocks";
    sequence.EnterRow(free_rows_.Take());
    draft->plan.starts.push_back({sequence.row(), sequence.id(), static_cast<uint32_t>(sequence.sample_index()),
                                  static_cast<int>(group->request().prompt.size()), sequence.tokens(),
                                  group->request().sampling});
    const int num_tokens = std::min({sequence.num_uncomputed_tokens(), options_.max_chunk_tokens, draft->budget});
    if (num_tokens == 0) continue;
    draft->slices.push_back({group, &sequence, num_tokens});
    draft->budget -= num_tokens;
  }
}

StepPlan Scheduler::Complete(Draft draft) {
  if (draft.slices.empty()) return std::move(draft.plan);
  PlanInFlight& in_flight = plans_in_flight_.emplace_back(PlanInFlight{draft.plan.step, {}});
  in_flight.slices.reserve(draft.slices.size());
  draft.plan.slices.reserve(draft.slices.size());
  for (const Draft::Slice& slice : draft.slices) {
    draft.plan.slices.push_back(PlanSlice(*slice.group, slice.sequence, slice.num_tokens, &in_flight));
  }
  next_step_ = StepId{Value(next_step_) + 1};
  return std::move(draft.plan);
}

SequenceSlice Scheduler::PlanSlice(const SequenceGroup& group, Sequence* sequence, int num_tokens,
                                   PlanInFlight* in_flight) {
  SequenceSlice slice;
  slice.row = sequence->row();
  slice.first_position = sequence->num_computed_tokens();
  slice.num_tokens = num_tokens;
  slice.sample = num_tokens == sequence->num_uncomputed_tokens();
  sequence->FillTableChange(blocks_->Table(sequence->id()), blocks_->block_size(), &slice);
  scheduled_tokens_ += num_tokens;
  recomputed_tokens_ += sequence->NumRecomputed(num_tokens);
  sequence->OnSlicePlanned(num_tokens);
  in_flight->slices.push_back({group.id(), sequence->id(), slice.first_position, num_tokens, slice.sample,
                               NumPromptLogprobs(group.request(), slice.first_position, num_tokens)});
  return slice;
}

absl::Status Scheduler::CheckResult(const StepResult& result) const {
  if (plans_in_flight_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("result of step ", Value(result.step), ", no plan is in flight"));
  }
  const PlanInFlight& plan = plans_in_flight_.front();
  if (result.step != plan.step) {
    return absl::InvalidArgumentError(
        absl::StrCat("result of step ", Value(result.step), ", step ", Value(plan.step), " is due"));
  }
  if (result.slices.size() != plan.slices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("step ", Value(plan.step), " has ", plan.slices.size(),
                                                   " slices, its result has ", result.slices.size()));
  }
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    if (result.slices[i].sampled != plan.slices[i].sample) {
      return absl::InvalidArgumentError(absl::StrCat("slice ", i, " of step ", Value(plan.step), " samples ",
                                                     plan.slices[i].sample ? 1 : 0, " tokens, its result has ",
                                                     result.slices[i].sampled ? 1 : 0));
    }
    if (static_cast<int>(result.slices[i].prompt_logprobs.size()) != plan.slices[i].num_prompt_logprobs) {
      return absl::InvalidArgumentError(
          absl::StrCat("slice ", i, " of step ", Value(plan.step), " has ", plan.slices[i].num_prompt_logprobs,
                       " prompt logprobs, its result has ", result.slices[i].prompt_logprobs.size()));
    }
  }
  return absl::OkStatus();
}

StepOutput Scheduler::Commit(StepResult result) {
  const absl::Status status = CheckResult(result);
  QUIRE_CHECK(status.ok()) << status;
  const PlanInFlight plan = std::move(plans_in_flight_.front());
  plans_in_flight_.pop_front();
  blocks_->OnStepCommitted(plan.step);
  StepOutput output;
  output.emissions.reserve(plan.slices.size());
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    CommitSlice(plan.slices[i], std::move(result.slices[i]), &output);
  }
  return output;
}

void Scheduler::CommitSlice(const SliceInFlight& slice, SliceResult result, StepOutput* output) {
  SequenceGroup* group = Find(slice.request);
  Sequence* sequence = group == nullptr ? nullptr : group->Find(slice.sequence);
  if (sequence == nullptr) return;  // It ended after the slice was planned.
  sequence->OnSliceCommitted(slice.sample);
  if (!group->has_started) {
    group->has_started = true;
    output->started.push_back(slice.request);
  }
  EmitPromptLogprobs(slice, std::move(result.prompt_logprobs), group, output);
  if (!slice.sample) return;
  const int position = slice.first_position + slice.num_tokens;
  QUIRE_CHECK_EQ(position, sequence->num_known_tokens()) << slice.sequence;
  const TokenId token = result.token.token;
  sequence->Append(token);
  output->emissions.push_back({slice.request, sequence->sample_index(), position, std::move(result.token)});
  if (auto reason = StopReason(group->request(), sequence->num_generated_tokens(), token)) {
    output->finished.push_back({slice.request, sequence->sample_index(), *reason});
    Remove(group);
  }
}

// Entry i belongs to position slice.first_position + i + 1. Those emitted before a preemption are not repeated.
void Scheduler::EmitPromptLogprobs(const SliceInFlight& slice, std::vector<ScoredToken> logprobs, SequenceGroup* group,
                                   StepOutput* output) {
  if (logprobs.empty()) return;
  const int num_repeated = group->next_prompt_logprob - (slice.first_position + 1);
  QUIRE_CHECK_GE(num_repeated, 0) << slice.sequence;
  if (num_repeated >= static_cast<int>(logprobs.size())) return;
  logprobs.erase(logprobs.begin(), logprobs.begin() + num_repeated);
  const int first_position = group->next_prompt_logprob;
  group->next_prompt_logprob += static_cast<int>(logprobs.size());
  output->prompt_logprobs.push_back({slice.request, first_position, std::move(logprobs)});
}

void Scheduler::AbandonAll() {
  plans_in_flight_.clear();
  blocks_->OnStepsAbandoned();
  next_step_ = StepId{1};
  for (SequenceGroup* group : running_) {
    ReleaseMemory(group);
    waiting_.emplace(group->rank(), group);
  }
  running_.clear();
  for (auto& [rank, group] : waiting_) {
    for (Sequence& sequence : group->sequences()) sequence.OnSlicesAbandoned();
  }
}

SchedulerCounts Scheduler::counts() const {
  return {static_cast<int>(waiting_.size()), static_cast<int>(running_.size()), preemptions_, scheduled_tokens_,
          recomputed_tokens_};
}

void Scheduler::ReleaseMemory(SequenceGroup* group) {
  for (Sequence& sequence : group->sequences()) {
    blocks_->Free(sequence.id());
    free_rows_.Return(sequence.row());
    sequence.LeaveRow();
  }
  group->is_running = false;
}

void Scheduler::Remove(SequenceGroup* group) {
  if (group->is_running) {
    ReleaseMemory(group);
    running_.erase(std::partition_point(running_.begin(), running_.end(), ByRank(group->rank())));
  } else {
    waiting_.erase(group->rank());
  }
  deadlines_.erase({group->request().deadline_us, group->rank().submission});
  groups_.erase(group->id());
}

SequenceGroup* Scheduler::Find(RequestId request) const {
  auto it = groups_.find(request);
  return it == groups_.end() ? nullptr : it->second.get();
}

}  // namespace quire
