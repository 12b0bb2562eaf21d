#include "scheduler/scheduler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "scheduler/admission.h"

namespace quire {
namespace {

// So many requests that wait for a prefix are passed in one plan: each costs a look at its whole prompt.
constexpr int kMaxPrefixWaits = 32;

// Logprobs that the worker returns for tokens [first, first + num_tokens): each belongs to the token after.
int NumPromptLogprobs(const Request& request, int first, int num_tokens) {
  if (request.sampling.num_prompt_logprobs < 0) return 0;
  return std::clamp(static_cast<int>(request.prompt.size()) - 1 - first, 0, num_tokens);
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, BlockManager* blocks)
    : options_(options),
      token_budget_(options.max_tokens_per_step),
      blocks_(blocks),
      watermark_blocks_(WatermarkBlocks(options.watermark, blocks->num_blocks())),
      waiting_(options, [this](const SequenceGroup& group) { return NumCachedTokens(group); }),
      free_rows_(options.max_sequences),
      row_owners_(options.max_sequences) {
  const absl::Status status = CheckSchedulerOptions(options);
  QUIRE_CHECK(status.ok()) << status;
}

absl::Status Scheduler::Submit(Request request) {
  QUIRE_RETURN_IF_ERROR(CheckCanEverFit(request, options_, *blocks_));
  if (groups_.contains(request.id)) {
    return absl::AlreadyExistsError(absl::StrCat("request ", Value(request.id), " is already known"));
  }
  if (waiting_.size() >= options_.max_waiting_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " requests wait, the limit is ", options_.max_waiting_requests));
  }
  const ServiceRank rank = waiting_.RankOf(request, num_submitted_++);
  auto group = std::make_unique<SequenceGroup>(std::move(request), rank, NewSequenceId());
  waiting_.Add(group.get());
  num_beam_searches_ += group->beam_search() != nullptr;
  groups_.emplace(group->id(), std::move(group));
  return absl::OkStatus();
}

bool Scheduler::Cancel(RequestId request) {
  SequenceGroup* group = Find(request);
  if (group == nullptr) return false;
  Remove(group);
  return true;
}

bool Scheduler::CancelSample(RequestId request, int sample_index) {
  SequenceGroup* group = Find(request);
  if (group == nullptr || group->beam_search() != nullptr || group->num_to_fork() > 0) return false;
  for (const auto& sequence : group->sequences()) {
    if (sequence->sample_index() != sample_index) continue;
    RemoveSequence(group, sequence.get());
    return true;
  }
  return false;
}

StepPlan Scheduler::Plan() {
  QUIRE_CHECK_LT(num_plans_in_flight(), options_.max_plans_in_flight);
  for (bool has_preempted = false;;) {
    blocks_->BeginStep(next_step_);
    Draft draft;
    draft.plan.step = next_step_;
    PlanRunning(&draft);
    const bool preempts = draft.has_preempted;
    has_preempted |= preempts;
    if (!has_preempted && MayAdmit()) PlanWaiting(&draft);
    GrowChunks(&draft);
    StepPlan plan = Complete(std::move(draft));
    if (!plan.empty() || !preempts) return plan;
    // Copies for those that were preempted afterwards have kept blocks from those that stay. A plan that is not sent
    // copies nothing: the next attempt has more room, and fewer to preempt.
  }
}

void Scheduler::PlanRunning(Draft* draft) {
  int num_unserved = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (i + kPrefetchDistance < running_.size()) running_[i + kPrefetchDistance]->Prefetch();
    num_unserved += running_[i]->num_sequences();
  }
  draft->slices.reserve(num_unserved);
  draft->budget = std::min(options_.max_tokens_per_step, std::max(token_budget_, num_unserved + kMinPromptTokens));
  for (size_t i = 0; i < running_.size(); ++i) {
    SequenceGroup* const group = running_[i];
    if (i + 2 * kPrefetchDistance < running_.size()) running_[i + 2 * kPrefetchDistance]->Prefetch();
    if (i + kPrefetchDistance < running_.size()) running_[i + kPrefetchDistance]->PrefetchSequence();
    for (const auto& sequence : group->sequences()) {
      --num_unserved;
      if (!group->is_running || group->KeepsWaiting(sequence.get())) continue;
      if (group->beam_search() != nullptr && sequence->has_samples_in_flight()) continue;
      // A chunk leaves a token of the budget to everyone after it: prefill never stops a decode.
      const int fair_budget = std::min(draft->budget, std::max(draft->budget - num_unserved, 1));
      const int num_tokens = SliceTokens(*sequence, fair_budget);
      if (num_tokens <= 0 || !Reserve(*group, sequence.get(), num_tokens, draft)) continue;
      draft->slices.push_back({group, sequence.get(), num_tokens});
      draft->budget -= num_tokens;
    }
  }
  if (draft->has_preempted) std::erase_if(running_, [](const SequenceGroup* group) { return !group->is_running; });
}

int Scheduler::SliceTokens(const Sequence& sequence, int budget) const {
  constexpr int kLeastCut = 16;  // Smaller chunks would cost more in attention than they are worth.
  const int wanted = std::min(sequence.num_uncomputed_tokens(), options_.max_chunk_tokens);
  return wanted <= budget ? wanted : std::max(budget / 2, std::min(budget, kLeastCut));
}

void Scheduler::GrowChunks(Draft* draft) {
  for (Draft::Slice& slice : draft->slices) {
    if (draft->budget <= 0) return;
    const int wanted = std::min(slice.sequence->num_uncomputed_tokens(), options_.max_chunk_tokens);
    const int more = std::min(wanted - slice.num_tokens, draft->budget);
    if (more <= 0 || !TryReserve(slice.sequence, slice.num_tokens + more, draft)) continue;
    slice.num_tokens += more;
    draft->budget -= more;
  }
}

bool Scheduler::TryReserve(Sequence* sequence, int num_tokens, Draft* draft) {
  const int first = sequence->num_computed_tokens();
  if (sequence->IsWritable(first + num_tokens)) return true;
  if (!blocks_->Allocate(sequence->id(), first, first + num_tokens, &draft->plan.copies)) return false;
  sequence->OnAllocated(first + num_tokens, blocks_->block_size());
  return true;
}

bool Scheduler::Reserve(const SequenceGroup& group, Sequence* sequence, int num_tokens, Draft* draft) {
  while (!TryReserve(sequence, num_tokens, draft)) {
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
  ++counts_.preemptions;
  std::vector<SequenceExtent> computed;
  bool is_computed = true;
  for (const auto& sequence : group->sequences()) {
    computed.push_back({sequence->id(), sequence->num_computed_tokens()});
    is_computed &= !group->KeepsWaiting(sequence.get());
  }
  const bool is_swapped = is_computed && blocks_->SwapOut(computed, &draft->plan.swap_outs);
  if (is_swapped) ++counts_.swap_outs;
  Suspend(group, is_swapped);
}

bool Scheduler::MayAdmit() const {
  if (running_.empty()) return true;
  if (options_.batching == Batching::kStatic && !is_batch_open_) return false;
  return waiting_.size() >= options_.waiting_served_ratio * static_cast<double>(running_.size());
}

void Scheduler::PlanWaiting(Draft* draft) {
  // A batch is open until a plan finds nobody to add to it.
  is_batch_open_ = false;
  int num_waiting_for_prefix = 0;
  waiting_.Visit([&](SequenceGroup* group) {
    if (draft->budget == 0) return false;
    int64_t num_start_tokens = draft->num_start_tokens;
    for (const auto& sequence : group->sequences()) {
      num_start_tokens += NumStartTokens(group->request(), sequence->num_known_tokens());
    }
    if (!draft->plan.starts.empty() && num_start_tokens > kMaxStartTokens) return false;
    const Entry entry = FindEntry(group);
    if (entry.door == Door::kNoRoom) return false;  // Nobody overtakes: the first one would starve.
    if (entry.door == Door::kWaitsForPrefix) return ++num_waiting_for_prefix < kMaxPrefixWaits;
    Enter(group, entry, draft);
    draft->num_start_tokens = num_start_tokens;
    is_batch_open_ = true;
    return true;
  });
}

StepPlan Scheduler::Complete(Draft draft) {
  StepPlan& plan = draft.plan;
  if (draft.slices.empty() && plan.empty()) return std::move(plan);
  PlanInFlight& in_flight = plans_in_flight_.emplace_back(PlanInFlight{plan.step, {}});
  in_flight.slices.reserve(draft.slices.size());
  plan.slices.reserve(draft.slices.size());
  if (num_beam_searches_ > 0) PlanBeamRows(&plan);
  for (size_t i = 0; i < draft.slices.size(); ++i) {
    if (i + kPrefetchDistance < draft.slices.size()) {
      draft.slices[i + kPrefetchDistance].group->Prefetch();
      draft.slices[i + kPrefetchDistance].sequence->Prefetch();
    }
    const Draft::Slice& slice = draft.slices[i];
    const bool forks = slice.group->num_to_fork() > 0 && slice.num_tokens == slice.sequence->num_uncomputed_tokens();
    const std::optional<Sequence> before = forks ? std::optional(*slice.sequence) : std::nullopt;
    plan.slices.push_back(PlanSlice(slice.group, slice.sequence, slice.num_tokens, &in_flight));
    Publish(slice.sequence);
    if (forks) ForkSamples(slice.group, *before, &plan, &in_flight);
  }
  next_step_ = StepId{Value(next_step_) + 1};
  return std::move(plan);
}

SequenceSlice Scheduler::PlanSlice(SequenceGroup* group, Sequence* sequence, int num_tokens, PlanInFlight* in_flight) {
  SequenceSlice slice;
  slice.row = sequence->row();
  slice.first_position = sequence->num_computed_tokens();
  slice.num_tokens = num_tokens;
  slice.sample = num_tokens == sequence->num_uncomputed_tokens();
  if (sequence->MayHaveChangedTable()) {
    sequence->FillTableChange(blocks_->Table(sequence->id()), blocks_->block_size(), &slice);
  } else {
    slice.first_changed_block = sequence->num_sent_blocks();
  }
  counts_.scheduled_tokens += num_tokens;
  counts_.recomputed_tokens += sequence->NumRecomputed(num_tokens);
  sequence->OnSlicePlanned(num_tokens);
  waiting_.Charge(group->request().tenant, std::max(num_tokens, 1));
  row_owners_[Value(slice.row)] = {sequence->id(), group, sequence};
  in_flight->slices.push_back({group->id(), sequence->id(), slice.row, slice.first_position, num_tokens, slice.sample,
                               slice.sample && group->beam_search() != nullptr,
                               NumPromptLogprobs(group->request(), slice.first_position, num_tokens)});
  return slice;
}

// A slice ends the prompt: the group's other samples begin as copies of its sequence, which was `before` the slice what
// their rows will be made of, and draw from its logits.
void Scheduler::ForkSamples(SequenceGroup* group, const Sequence& before, StepPlan* plan, PlanInFlight* in_flight) {
  Sequence& parent = *group->sequences().front();
  parent.OnShared();
  const int num_computed = parent.num_computed_tokens();
  const int num_children = group->num_to_fork();
  group->OnForked();
  for (int i = 1; i <= num_children; ++i) {
    Sequence* child = group->Add(before.Fork(NewSequenceId(), i));
    child->OnTableChanged(parent.first_changed_block());
    blocks_->Fork(parent.id(), child->id(), num_computed);
    child->EnterRow(group->TakeSpareRow(), num_computed);
    plan->forks.push_back({child->row(), parent.row(), child->id(), static_cast<uint32_t>(i)});
    plan->slices.push_back(PlanSlice(group, child, 0, in_flight));
    ++counts_.forks;
  }
}

// What the last Advance of beam searches means for their rows, which the worker has left as they were.
void Scheduler::PlanBeamRows(StepPlan* plan) {
  for (SequenceGroup* group : running_) {
    if (group->beam_search() == nullptr) continue;
    for (const auto& beam : group->sequences()) {
      if (std::optional<RowId> parent = std::exchange(beam->pending_fork, std::nullopt); parent.has_value()) {
        plan->forks.push_back({beam->row(), *parent, beam->id(), static_cast<uint32_t>(beam->sample_index())});
      }
      if (std::exchange(beam->has_pending_append, false)) {
        plan->appends.push_back({beam->row(), beam->tokens().back()});
      }
    }
  }
}

void Scheduler::Publish(Sequence* sequence) {
  if (!sequence->TakeUnpublished(blocks_->block_size())) return;
  const auto changed = blocks_->Publish(sequence->id(), sequence->tokens(), sequence->num_shareable_tokens());
  if (changed.has_value()) sequence->OnTableChanged(*changed);
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.waiting = waiting_.size();
  counts.running = static_cast<int>(running_.size());
  return counts;
}

void Scheduler::ForEachGroup(absl::FunctionRef<void(const SequenceGroup&)> call) const {
  for (const SequenceGroup* group : running_) call(*group);
  waiting_.ForEach([&](SequenceGroup* group) { call(*group); });
}

Scheduler::Occupant Scheduler::OccupantOf(RowId row) const {
  const RowOwner& owner = row_owners_[Value(row)];
  if (owner.sequence == nullptr) return {};
  return {owner.group->id(), owner.sequence};
}

void Scheduler::SendTableAgain(RowId row, SequenceId sequence) {
  const RowOwner& owner = row_owners_[Value(row)];
  if (owner.sequence != nullptr && owner.id == sequence) owner.sequence->ForgetSentTable();
}

void Scheduler::RemoveSequence(SequenceGroup* group, Sequence* sequence) {
  if (group->num_sequences() == 1) return Remove(group);
  const SequenceId id = sequence->id();
  const int num_computed = sequence->num_computed_tokens();
  if (group->is_running) {
    if (!group->KeepsWaiting(sequence)) Publish(sequence);
    ReleaseRow(*sequence);
    free_rows_.Return(sequence->row());
  }
  blocks_->Free(id);
  group->Erase(sequence);
  bool is_broken = false;
  for (const auto& sibling : group->sequences()) {
    if (!sibling->wait.has_value() || sibling->wait->sequence != id) continue;
    if (num_computed < sibling->wait->num_tokens) is_broken = true;
    sibling->wait.reset();
  }
  // Nobody will compute what these wait for: they begin again without it.
  if (!is_broken) return;
  QUIRE_CHECK(group->is_running) << group->id() << " has lost what it waits for";
  running_.erase(RunningPlace(group->rank()));
  Suspend(group, /*keeps_blocks=*/false);
}

// The caller takes the group out of running_.
void Scheduler::Suspend(SequenceGroup* group, bool keeps_blocks) {
  ReleaseRows(group);
  for (const auto& sequence : group->sequences()) {
    if (!keeps_blocks) blocks_->Free(sequence->id());
    sequence->LeaveRow(keeps_blocks);
  }
  group->is_running = false;
  group->is_swapped = keeps_blocks;
  counts_.swapped += keeps_blocks;
  waiting_.Add(group);
}

void Scheduler::ReleaseRows(SequenceGroup* group) {
  for (const auto& sequence : group->sequences()) {
    ReleaseRow(*sequence);
    free_rows_.Return(sequence->row());
  }
  for (const RowId row : group->spare_rows) free_rows_.Return(row);
  group->spare_rows.clear();
}

void Scheduler::Remove(SequenceGroup* group) {
  if (group->is_running) {
    ReleaseRows(group);
    running_.erase(RunningPlace(group->rank()));
  } else {
    waiting_.Remove(group);
    counts_.swapped -= group->is_swapped;
  }
  for (const auto& sequence : group->sequences()) {
    // What one that waits shares is not computed yet.
    if (group->is_running && !group->KeepsWaiting(sequence.get())) Publish(sequence.get());
    blocks_->Free(sequence->id());
  }
  num_beam_searches_ -= group->beam_search() != nullptr;
  groups_.erase(group->id());
}

std::vector<SequenceGroup*>::iterator Scheduler::RunningPlace(const ServiceRank& rank) {
  return std::partition_point(running_.begin(), running_.end(),
                              [&](const SequenceGroup* group) { return group->rank() < rank; });
}

SequenceGroup* Scheduler::Find(RequestId request) const {
  auto it = groups_.find(request);
  return it == groups_.end() ? nullptr : it->second.get();
}

SequenceId Scheduler::NewSequenceId() {
  return SequenceId{++num_sequences_};
}

}  // namespace quire
