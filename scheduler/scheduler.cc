// SPDX-License-Identifier: Apache-2.0

#include "scheduler/scheduler.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/num_blocks.h"
#include "base/number_text.h"
#include "base/status.h"
#include "scheduler/emission.h"
#include "scheduler/request_size.h"
#include "scheduler/restored_group.h"
#include "scheduler/stop.h"

namespace quire {
namespace {

// Limit of requests waiting for a prefix that one plan passes over, because each costs a look at its whole prompt.
constexpr int kMaxPrefixWaits = 32;

// The share of a step's tokens that may be recomputed while other sequences need the rest.
constexpr int kMaxRecomputedPercent = 70;

// Number of sequences that walks over running sequences prefetch ahead.
constexpr size_t kPrefetchDistance = 8;

// Returns how many logprobs the worker returns for tokens [first, first + num_tokens). Each belongs to the token that
// follows.
int NumPromptLogprobs(const Request& request, int first, int num_tokens) {
  if (request.sampling.num_prompt_logprobs < 0) return 0;
  return std::clamp(static_cast<int>(request.prompt.size()) - 1 - first, 0, num_tokens);
}

// Returns whether computed blocks are published when the next slice is planned, not in the plan that computes them. A
// prompt with logprobs is computed although it is cached, so its blocks are replaced by the blocks of the cache, and
// the next slice tells the row. A beam gets no slice while its sample is in flight. Its row would still name blocks
// that others have got, and the next manager would have to compute them again.
bool PublishesLate(const Request& request) {
  return request.beam.has_value() && request.sampling.num_prompt_logprobs >= 0;
}

// Returns whether the sheets that the next slice of the sequence reads are known. If the worker puts off a draw in
// flight, that slice begins a token earlier, and its window may begin in an earlier sheet.
bool KnowsItsWindow(const Sequence& sequence, const CacheGroups& groups) {
  const int latest = sequence.num_computed_tokens(), earliest = std::min(latest, sequence.num_known_tokens());
  for (int i = 1; i < groups.size(); ++i) {
    if (groups.FirstSheet(i, earliest) != groups.FirstSheet(i, latest)) return false;
  }
  return true;
}

// Returns how many tokens every sequence of the group tells the worker when it starts.
int64_t NumStartTokens(const SequenceGroup& group) {
  int64_t num_tokens = 0;
  for (const auto& sequence : group.sequences()) {
    num_tokens += NumStartTokens(group.request(), sequence->num_known_tokens());
  }
  if (group.keeps_scores()) num_tokens += std::min(group.NumScoreNumbers(), kMaxStartScores);
  return num_tokens;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, BlockManager* blocks)
    : options_(options),
      limits_blocks_(options.tenants.LimitBlocks()),
      blocks_(blocks),
      running_(options.max_sequences),
      waiting_(options, [this](const SequenceGroup& group) { return admission_.NumCachedTokens(group); }),
      admission_(options, blocks, &running_, &waiting_),
      forks_(blocks, &running_),
      rows_(options.max_sequences) {
  const absl::Status status = CheckSchedulerOptions(options);
  QUIRE_CHECK(status.ok()) << status;
}

absl::Status Scheduler::Submit(Request request, std::optional<Displaced>* displaced) {
  QUIRE_RETURN_IF_ERROR(CheckCanEverFit(request, options_, *blocks_));
  QUIRE_RETURN_IF_ERROR(CheckFitsShare(request, options_.tenants, *blocks_));
  if (groups_.contains(request.id)) {
    return absl::AlreadyExistsError(absl::StrCat("request ", Value(request.id), " is already known"));
  }
  if (waiting_.size() >= options_.max_waiting_requests) {
    SequenceGroup* const loser = displaced == nullptr ? nullptr : waiting_.ToDisplace(request.tenant);
    if (loser == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("the worker has a queue of ",
                                                       Counted(options_.max_waiting_requests, "request"),
                                                       " (max_waiting_requests), and it is full"));
    }
    *displaced = {loser->id(), loser->request().tenant};
    Remove(loser);
  }
  const ServiceRank rank = waiting_.RankOf(request, next_submission_++);
  auto group = std::make_unique<SequenceGroup>(std::move(request), rank, forks_.NewSequenceId());
  if (group->num_sequences() > 1) group->EnterScheduler(rank, [this] { return forks_.NewSequenceId(); });
  Insert(std::move(group), /*runs=*/false);
  return absl::OkStatus();
}

SequenceGroup* Scheduler::Insert(std::unique_ptr<SequenceGroup> entering, bool runs) {
  SequenceGroup* const group = entering.get();
  groups_.emplace(group->id(), std::move(entering));
  if (KeepsScores(group->request())) group->KeepScores();
  if (runs) {
    running_.Add(group);
  } else {
    waiting_.Add(group);
  }
  num_beam_searches_ += group->beam_search() != nullptr;
  suspects_.Add(group);
  return group;
}

std::unique_ptr<SequenceGroup> Scheduler::Extract(SequenceGroup* group) {
  if (group->is_running()) {
    running_.Remove(group);
  } else {
    waiting_.Remove(group);
  }
  num_beam_searches_ -= group->beam_search() != nullptr;
  suspects_.Remove(*group);
  return std::move(groups_.extract(group->id()).mapped());
}

void Scheduler::SetTenants(const TenantShares& shares) {
  options_.tenants = shares;
  limits_blocks_ = shares.LimitBlocks();
  waiting_.SetShares(shares);
}

bool Scheduler::Cancel(RequestId request, bool has_finished) {
  SequenceGroup* group = Find(request);
  if (group == nullptr) return false;
  Remove(group, has_finished);
  return true;
}

bool Scheduler::CancelSample(RequestId request, int sample_index) {
  SequenceGroup* group = Find(request);
  if (group == nullptr || group->beam_search() != nullptr || group->num_to_fork() > 0) return false;
  for (const auto& sequence : group->sequences()) {
    if (sequence->sample_index() != sample_index) continue;
    RemoveSequence(group, sequence.get(), /*has_finished=*/true);
    return true;
  }
  return false;
}

StepPlan Scheduler::Plan() {
  QUIRE_CHECK_LT(num_plans_in_flight(), options_.max_plans_in_flight);
  for (bool has_preempted = false;;) {
    blocks_->BeginStep(next_step_);
    PlanDraft draft(next_step_);
    PlanRunning(&draft);
    const bool preempts = draft.has_preempted;
    has_preempted |= preempts;
    if (!suspects_.empty()) {
      PlanTrial(&draft);
    } else if (!has_preempted && admission_.MayAdmit()) {
      PlanWaiting(&draft);
    }
    GrowChunks(&draft, /*are_recomputed=*/false);
    GrowChunks(&draft, /*are_recomputed=*/true);
    StepPlan plan = Complete(std::move(draft));
    if (!plan.empty() || !preempts) return plan;
    // Copies for groups that were preempted later have kept blocks from the groups that stay. A plan that is not sent
    // copies nothing, so the next attempt has more room and preempts fewer groups.
  }
}

bool Scheduler::RestartStuck() {
  if (running_.empty() || plans_in_flight_.size() > 0) return false;
  for (SequenceGroup* const group : running_.groups()) {
    ++num_preemptions_;
    Suspend(group, /*keeps_blocks=*/false);
  }
  running_.EraseSuspended();
  return true;
}

StepDemand Scheduler::Demand() const {
  StepDemand demand;
  if (step_limit_.us_per_token <= 0) return demand;
  const absl::Span<SequenceGroup* const> groups = running_.groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i + 2 * kPrefetchDistance < groups.size()) groups[i + 2 * kPrefetchDistance]->Prefetch();
    if (i + kPrefetchDistance < groups.size()) groups[i + kPrefetchDistance]->PrefetchSequence();
    for (const auto& sequence : groups[i]->sequences()) {
      const int num_tokens = sequence->num_uncomputed_tokens();
      if (num_tokens <= 1) {
        demand.num_decodes += num_tokens;
        continue;
      }
      ++demand.num_prompts;
      demand.uncomputed_tokens += num_tokens;
      demand.prompt_tokens += std::max(num_tokens, sequence->num_tokens() - groups[i]->progress().num_cached_tokens);
    }
  }
  // Tokens of requests that cannot get a row are nothing that this plan or the next ones could compute.
  const int num_entering = std::min(waiting_.size(), running_.num_free_rows());
  if (num_entering == 0) return demand;
  const int64_t num_tokens = waiting_.num_uncomputed_tokens() * num_entering / waiting_.size();
  demand.num_prompts += num_entering;
  demand.uncomputed_tokens += num_tokens;
  demand.prompt_tokens += num_tokens;
  return demand;
}

void Scheduler::PlanRunning(PlanDraft* draft) {
  const absl::Span<SequenceGroup* const> groups = running_.groups();
  int num_unserved = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i + kPrefetchDistance < groups.size()) groups[i + kPrefetchDistance]->Prefetch();
    num_unserved += groups[i]->num_sequences();
  }
  draft->slices.reserve(num_unserved);
  draft->budget = std::min(options_.max_tokens_per_step,
                           std::max(step_limit_.MaxTokens(Demand()), num_unserved + StepLimit::kMinPromptTokens));
  draft->recompute_budget = std::max(draft->budget * kMaxRecomputedPercent / 100, 1);
  for (size_t i = 0; i < groups.size(); ++i) {
    SequenceGroup* const group = groups[i];
    if (i + 2 * kPrefetchDistance < groups.size()) groups[i + 2 * kPrefetchDistance]->Prefetch();
    if (i + kPrefetchDistance < groups.size()) groups[i + kPrefetchDistance]->PrefetchSequence();
    for (const auto& sequence : group->sequences()) {
      --num_unserved;
      if (!group->is_running() || KeepsWaiting(group, sequence.get())) continue;
      if (group->beam_search() != nullptr && sequence->has_samples_in_flight()) continue;
      // A chunk leaves one token of the budget to each sequence after it, so that prefill never stops a decode.
      const int fair_budget = std::min(draft->BudgetOf(*sequence), std::max(draft->budget - num_unserved, 1));
      const int num_tokens = NumSliceTokens(*sequence, fair_budget, MaxSliceTokens(*group, *sequence));
      if (num_tokens <= 0) continue;
      if (!sequence->draws_again() && !Reserve(*group, sequence.get(), num_tokens, draft)) continue;
      draft->AddSlice(group, sequence.get(), num_tokens);
    }
  }
  if (draft->has_preempted) running_.EraseSuspended();
}

void Scheduler::PlanWaiting(PlanDraft* draft) {
  admission_.SetBatchOpen(false);
  if (waiting_.empty()) return;
  int num_waiting_for_prefix = 0;
  int64_t num_start_tokens = 0;
  std::optional<TenantBlocks> held = HeldByTenants();
  waiting_.Visit([&](SequenceGroup* group) {
    using Verdict = AdmissionControl::Verdict;
    using Next = WaitingQueue::Next;
    if (draft->budget == 0) return Next::kNone;
    // Smaller groups of the tenant must not overtake this one for ever.
    if (held.has_value() && !held->HasRoomFor(*group)) return Next::kOfOthers;
    const int64_t num_more_start_tokens = NumStartTokens(*group);
    if (num_start_tokens > 0 && num_start_tokens + num_more_start_tokens > kMaxStartTokens) return Next::kNone;
    AdmissionControl::Decision decision = admission_.Decide(group, next_step_);
    if (decision.verdict == Verdict::kMayEnter && draft->BudgetOf(*group->sequences().front()) == 0) {
      // Nobody overtakes the group, so what running prompts do not need is left over. They take blocks, too.
      GrowChunks(draft, /*are_recomputed=*/false);
      draft->recompute_budget = draft->budget;
      if (draft->budget == 0) return Next::kNone;
      decision = admission_.Decide(group, next_step_);
    }
    // Nobody may overtake, or the first group would starve.
    if (decision.verdict == Verdict::kNoRoom) return Next::kNone;
    if (decision.verdict == Verdict::kWaitsForPrefix) {
      return ++num_waiting_for_prefix < kMaxPrefixWaits ? Next::kInOrder : Next::kNone;
    }
    Enter(group, decision, draft);
    if (held.has_value()) held->Add(*group);
    num_start_tokens += num_more_start_tokens;
    admission_.SetBatchOpen(true);
    return Next::kInOrder;
  });
}

// A suspect enters when nothing else runs and nothing else is in flight, so that a loss while it runs says something.
void Scheduler::PlanTrial(PlanDraft* draft) {
  if (!running_.empty() || plans_in_flight_.size() > 0) return;
  SequenceGroup* const suspect = suspects_.newest();
  const AdmissionControl::Decision decision = admission_.Decide(suspect, next_step_);
  if (decision.verdict == AdmissionControl::Verdict::kMayEnter) Enter(suspect, decision, draft);
}

void Scheduler::Enter(SequenceGroup* group, const AdmissionControl::Decision& decision, PlanDraft* draft) {
  admission_.Enter(group, decision, &draft->plan);
  for (const auto& sequence : group->sequences()) rows_.OnTaken(sequence->row(), RecordedAs(group->request()));
  for (const auto& sequence : group->sequences()) {
    if (group->KeepsWaiting(sequence.get())) continue;
    const int num_tokens = NumSliceTokens(*sequence, draft->BudgetOf(*sequence), MaxSliceTokens(*group, *sequence));
    if (num_tokens > 0) draft->AddSlice(group, sequence.get(), num_tokens);
  }
}

void Scheduler::GrowChunks(PlanDraft* draft, bool are_recomputed) {
  for (PlanDraft::Slice& slice : draft->slices) {
    if (draft->budget <= 0) return;
    if (PlanDraft::IsRecomputed(*slice.sequence) != are_recomputed) continue;
    const int more = NumTokensToGrow(slice, draft->budget, MaxSliceTokens(*slice.group, *slice.sequence));
    if (more <= 0 || !TryReserve(slice.sequence, slice.num_tokens + more, &draft->plan)) continue;
    slice.num_tokens += more;
    draft->budget -= more;
  }
}

bool Scheduler::TryReserve(Sequence* sequence, int num_tokens, StepPlan* plan) {
  const int first = sequence->num_computed_tokens();
  if (sequence->IsWritable(first + num_tokens)) return true;
  if (!blocks_->Allocate(sequence->id(), first, first + num_tokens, &plan->copies)) return false;
  sequence->OnAllocated(first + num_tokens, blocks_->block_size());
  return true;
}

bool Scheduler::Reserve(const SequenceGroup& group, Sequence* sequence, int num_tokens, PlanDraft* draft) {
  while (!TryReserve(sequence, num_tokens, &draft->plan)) {
    SequenceGroup* victim = CheapestVictim();
    if (victim == nullptr) return false;
    Preempt(victim, draft);
    if (victim == &group) return false;
  }
  return true;
}

// A sequence that waits takes sheets of windows as soon as its wait ends, because the next slice of the other sequence
// gives them up.
bool Scheduler::KeepsWaiting(SequenceGroup* group, Sequence* sequence) {
  const std::optional<Sequence::Wait> wait = sequence->wait;
  if (!wait.has_value()) return false;
  if (group->KeepsWaiting(sequence)) return true;
  blocks_->ShareSheets(wait->sequence, sequence->id(), wait->num_tokens);
  return false;
}

// A slice ends where another sequence waits for it, if that will need the sheets of windows there.
int Scheduler::MaxSliceTokens(const SequenceGroup& group, const Sequence& sequence) const {
  int most = options_.max_chunk_tokens;
  if (blocks_->groups().size() == 1 || group.num_sequences() == 1) return most;
  for (const auto& sibling : group.sequences()) {
    if (!sibling->wait.has_value() || sibling->wait->sequence != sequence.id()) continue;
    const int distance = sibling->wait->num_tokens - sequence.num_computed_tokens();
    if (distance > 0) most = std::min(most, distance);
  }
  return most;
}

std::optional<TenantBlocks> Scheduler::HeldByTenants() const {
  if (!limits_blocks_) return std::nullopt;
  return TenantBlocks(&options_.tenants, *blocks_, running_.groups());
}

SequenceGroup* Scheduler::CheapestVictim() const {
  const std::optional<TenantBlocks> held = HeldByTenants();
  return running_.CheapestVictim(
      [&](const SequenceGroup& group) { return held.has_value() && held->IsOver(group.request().tenant); });
}

void Scheduler::Preempt(SequenceGroup* group, PlanDraft* draft) {
  draft->RemoveSlicesOf(group);
  draft->has_preempted = true;
  ++num_preemptions_;
  std::vector<SequenceExtent> computed;
  // The worker has added hidden states in the row, which does not come back with the blocks.
  bool is_computed = !PoolsEarlierTokens(group->request().sampling.pooling);
  for (const auto& sequence : group->sequences()) {
    computed.push_back({sequence->id(), sequence->num_computed_tokens()});
    is_computed &= !KeepsWaiting(group, sequence.get()) && KnowsItsWindow(*sequence, blocks_->groups());
  }
  const bool is_swapped = is_computed && blocks_->SwapOut(computed, &draft->plan.swap_outs);
  if (is_swapped) ++num_swap_outs_;
  Suspend(group, is_swapped);
}

std::optional<RequestId> Scheduler::RecordedAs(const Request& request) const {
  return options_.keeps_rows && request.record != nullptr ? std::optional(request.id) : std::nullopt;
}

bool Scheduler::KeepsScores(const Request& request) const {
  const SamplingParams& sampling = request.sampling;
  return RecordedAs(request).has_value() && (sampling.num_logprobs >= 0 || sampling.num_prompt_logprobs >= 0);
}

StepPlan Scheduler::Complete(PlanDraft draft) {
  StepPlan& plan = draft.plan;
  plan.end_rows = rows_.TakeEnded();
  if (draft.slices.empty() && plan.empty()) return std::move(plan);
  PlanInFlight& in_flight = plans_in_flight_.Add(plan.step);
  in_flight.slices.reserve(draft.slices.size());
  plan.slices.reserve(draft.slices.size());
  if (num_beam_searches_ > 0) SequenceForks::PlanBeamRows(running_.groups(), options_.keeps_rows, &plan);
  for (size_t i = 0; i < draft.slices.size(); ++i) {
    if (i + kPrefetchDistance < draft.slices.size()) {
      draft.slices[i + kPrefetchDistance].group->Prefetch();
      draft.slices[i + kPrefetchDistance].sequence->Prefetch();
    }
    const PlanDraft::Slice& slice = draft.slices[i];
    const bool forks = slice.group->num_to_fork() > 0 && slice.num_tokens == slice.sequence->num_uncomputed_tokens();
    const std::optional<Sequence> before = forks ? std::optional(*slice.sequence) : std::nullopt;
    const bool publishes_late = PublishesLate(slice.group->request());
    if (publishes_late) Publish(slice.sequence);
    plan.slices.push_back(PlanSlice(slice.group, slice.sequence, slice.num_tokens, &plan, &in_flight));
    if (!publishes_late) Publish(slice.sequence);
    if (!forks) continue;
    forks_.ForkSamples(slice.group, *before, &plan.forks);
    for (int child = 1; child < slice.group->num_sequences(); ++child) {
      plan.slices.push_back(PlanSlice(slice.group, slice.group->sequences()[child].get(), 0, &plan, &in_flight));
    }
  }
  for (const SequenceFork& fork : plan.forks) rows_.OnTaken(fork.row, rows_.RequestOf(fork.parent));
  // The forks have taken these from requests that have finished.
  const std::vector<RowId> ended = rows_.TakeEnded();
  plan.end_rows.insert(plan.end_rows.end(), ended.begin(), ended.end());
  next_step_ = StepId{Value(next_step_) + 1};
  return std::move(plan);
}

SequenceSlice Scheduler::PlanSlice(SequenceGroup* group, Sequence* sequence, int num_tokens, StepPlan* plan,
                                   PlanInFlight* in_flight) {
  SequenceSlice slice;
  slice.row = sequence->row();
  slice.first_position = sequence->num_computed_tokens();
  slice.num_tokens = sequence->draws_again() ? 0 : num_tokens;
  slice.sample = num_tokens == sequence->num_uncomputed_tokens();
  if (sequence->MayHaveChangedTable()) {
    const int first_sheet = std::min(slice.first_position / blocks_->block_size(), sequence->first_changed_block());
    sequence->FillTableChange(blocks_->Table(sequence->id()), blocks_->block_size(), &slice);
    for (int i = 1; i < blocks_->groups().size(); ++i) {
      sequence->AddSheetChange(static_cast<int>(plan->slices.size()), i, first_sheet, blocks_->groups(),
                               blocks_->Sheets(sequence->id(), i), &plan->sheet_changes);
    }
  } else {
    slice.first_changed_block = sequence->num_sent_blocks();
  }
  num_scheduled_tokens_ += slice.num_tokens;
  num_recomputed_tokens_ += sequence->NumRecomputed(slice.num_tokens);
  sequence->OnSlicePlanned(num_tokens);
  waiting_.Charge(group->request().tenant, std::max(num_tokens, 1));
  running_.SetOwner(slice.row, group, sequence);
  in_flight->slices.push_back({group->id(), sequence->id(), slice.row, slice.first_position, slice.num_tokens,
                               slice.first_position + slice.num_tokens > sequence->reached(), slice.sample,
                               slice.sample && group->beam_search() != nullptr,
                               NumPromptLogprobs(group->request(), slice.first_position, slice.num_tokens),
                               slice.sample && group->request().sampling.pooling != Pooling::kNone});
  return slice;
}

void Scheduler::Publish(Sequence* sequence) {
  if (!sequence->TakeUnpublished(blocks_->block_size())) return;
  const auto changed = blocks_->Publish(sequence->id(), sequence->tokens(), sequence->num_shareable_tokens());
  if (changed.has_value()) sequence->OnTableChanged(*changed);
}

StepOutput Scheduler::Commit(StepResult result) {
  const absl::Status status = CheckResult(result);
  QUIRE_CHECK(status.ok()) << status;
  const PlanInFlight plan = plans_in_flight_.TakeOldest();
  blocks_->OnStepCommitted(plan.step);
  StepOutput output;
  output.emissions.reserve(plan.slices.size());
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    PrefetchOwners(plan.slices, i);
    CommitSlice(plan.slices[i], std::move(result.slices[i]), &output);
  }
  suspects_.OnCommitted();
  if (!suspects_.empty()) SuspendCleared();
  return output;
}

// Works in three turns, because each turn reads what the turn before has fetched.
void Scheduler::PrefetchOwners(const std::vector<SliceInFlight>& slices, size_t index) const {
  const auto owner = [&](size_t turns) -> const RunningSet::RowOwner* {
    const size_t i = index + turns * kPrefetchDistance;
    return i < slices.size() ? &running_.OwnerOf(slices[i].row) : nullptr;
  };
  __builtin_prefetch(owner(3));
  if (const auto* second = owner(2); second != nullptr && second->sequence != nullptr) {
    second->group->Prefetch();
    second->sequence->Prefetch();
  }
  if (const auto* third = owner(1); third != nullptr && third->sequence != nullptr) third->sequence->PrefetchEnd();
}

void Scheduler::CommitSlice(const SliceInFlight& slice, SliceResult result, StepOutput* output) {
  const RunningSet::RowOwner& owner = running_.OwnerOf(slice.row);
  SequenceGroup* group = owner.group;
  Sequence* sequence = owner.sequence;
  if (owner.id != slice.sequence) {  // The sequence was preempted, or has ended.
    group = Find(slice.request);
    sequence = group == nullptr ? nullptr : group->Find(slice.sequence);
  }
  if (sequence == nullptr) return CommitEnded(slice.sequence, result.failure);
  const int position = slice.first_position + slice.num_tokens;
  const int reached = std::min(position, sequence->num_known_tokens());  // The slice may have come too early.
  if (sequence->OnSliceCommitted(reached, slice.sample)) group->suspicion().OnFarther();
  if (SequenceGroup::Progress& progress = group->progress(); !progress.has_started) {
    progress.has_started = true;
    output->started.push_back({slice.request, progress.num_cached_tokens});
  }
  if (result.failure.has_value()) return Fail(group, *sequence, *std::move(result.failure), output);
  if (!result.prompt_logprobs.empty()) {
    EmitPromptLogprobs(group, slice.first_position + 1, std::move(result.prompt_logprobs), output);
  }
  if (!slice.sample) return;
  if (result.is_postponed) {
    plans_in_flight_.OnPostponed(slice.sequence);
    return sequence->OnPostponed();
  }
  QUIRE_CHECK_EQ(position, sequence->num_known_tokens()) << slice.sequence;
  if (sequence->TakeUnproved(position, blocks_->block_size())) blocks_->Prove(slice.sequence, position);
  if (slice.has_candidates) {
    sequence->candidates = std::move(result.candidates);
    const bool are_all_there = std::all_of(group->sequences().begin(), group->sequences().end(),
                                           [](const auto& beam) { return beam->candidates.has_value(); });
    if (are_all_there) AdvanceBeams(group, output);
    return;
  }
  if (slice.has_embedding) output->embeddings.push_back({slice.request, std::move(result.embedding)});
  const TokenId token = result.token.token;
  sequence->Append(token);
  if (group->keeps_scores() && group->request().sampling.num_logprobs >= 0) sequence->scores.push_back(result.token);
  output->emissions.push_back({slice.request, sequence->sample_index(), position, std::move(result.token)});
  if (auto reason = StopReason(group->request(), sequence->num_generated_tokens(), token)) {
    const bool is_last = group->num_sequences() == 1;
    output->finished.push_back({slice.request, sequence->sample_index(), *reason, /*ends_request=*/is_last});
    RemoveSequence(group, sequence, /*has_finished=*/true);
  }
}

void Scheduler::AdvanceBeams(SequenceGroup* group, StepOutput* output) {
  BeamSearch& search = *group->beam_search();
  std::vector<std::vector<TokenLogprob>> candidates;
  for (const auto& beam : group->sequences()) {
    candidates.push_back(*std::exchange(beam->candidates, std::nullopt));
  }
  const std::vector<BeamSearch::Extension> extensions = search.Advance(candidates);
  if (search.is_done()) {
    EmitHypotheses(*group, output);
    return Remove(group, /*has_finished=*/true);
  }
  EmitAgreedTokens(group, output);
  forks_.ReplaceBeams(group, extensions);
}

// Spoiled blocks are freed first, so that Remove publishes none of them.
void Scheduler::Fail(SequenceGroup* group, const Sequence& sequence, SequenceFailure failure, StepOutput* output) {
  const Request& request = group->request();
  const bool is_sample = request.num_samples > 1 && group->beam_search() == nullptr && group->num_to_fork() == 0;
  const bool spoils_blocks = failure.spoils_blocks();
  output->failed.push_back(
      {request.id, is_sample ? std::optional(sequence.sample_index()) : std::nullopt, std::move(failure)});
  if (!spoils_blocks) return Remove(group);
  for (const auto& each : group->sequences()) blocks_->Free(each->id());
  for (const auto& each : group->sequences()) {
    if (!request.bypass_prefix_cache) blocks_->Uncache(request.cache_salt, each->tokens());
  }
  Remove(group);
}

void Scheduler::CommitEnded(SequenceId sequence, const std::optional<SequenceFailure>& failure) {
  const auto it = ended_.find(sequence);
  if (it == ended_.end()) return;
  if (failure.has_value() && failure->spoils_blocks()) blocks_->Uncache(it->second.salt, it->second.tokens);
  if (--it->second.num_slices_in_flight == 0) ended_.erase(it);
}

void Scheduler::AbandonAll() {
  plans_in_flight_.Clear();
  ended_.clear();
  blocks_->OnStepsAbandoned();
  rows_.Clear();
  next_step_ = StepId{1};
  for (SequenceGroup* group : running_.groups()) Suspend(group, /*keeps_blocks=*/false);
  running_.EraseSuspended();
  waiting_.OnSlicesAbandoned();
}

std::vector<Convict> Scheduler::AbandonLost(std::optional<SequenceId> named) {
  std::vector<Convict> convicts =
      suspects_.OnLost(plans_in_flight_, named, [this](RequestId request) { return Find(request); });
  AbandonAll();
  for (const Convict& convict : convicts) Cancel(convict.request);
  return convicts;
}

void Scheduler::SuspendCleared() {
  for (SequenceGroup* const group : running_.groups()) {
    if (!group->suspicion().is_suspect()) Suspend(group, /*keeps_blocks=*/false);
  }
  running_.EraseSuspended();
}

std::vector<MovedRequest> Scheduler::TakeAll() {
  QUIRE_CHECK(running_.empty()) << running_.size() << " requests run";
  std::vector<SequenceGroup*> leaving;
  waiting_.ForEach([&](SequenceGroup* group) { leaving.push_back(group); });
  std::sort(leaving.begin(), leaving.end(),
            [](const SequenceGroup* a, const SequenceGroup* b) { return a->rank().submission < b->rank().submission; });
  std::vector<MovedRequest> moved;
  for (SequenceGroup* const group : leaving) moved.push_back(Take(group->id()));
  return moved;
}

MovedRequest Scheduler::Take(RequestId request) {
  SequenceGroup* const group = Find(request);
  QUIRE_CHECK(group != nullptr) << request;
  QUIRE_CHECK(num_plans_in_flight() == 0 || (!group->is_running() && !group->has_slices_in_flight())) << request;
  rows_.End(request);
  if (group->is_running()) {
    Suspend(group, /*keeps_blocks=*/false);
    running_.EraseSuspended();
  }
  std::unique_ptr<SequenceGroup> taken = Extract(group);
  if (group->is_swapped()) {
    for (const auto& sequence : group->sequences()) {
      blocks_->Free(sequence->id());
      sequence->LeaveRow(/*keeps_blocks=*/false);
    }
    group->set_state(SequenceGroup::State::kWaiting);
  }
  ++group->progress().num_moves;
  return MovedRequest(std::move(taken));
}

absl::Status Scheduler::Adopt(MovedRequest&& moved) {
  QUIRE_RETURN_IF_ERROR(CheckCanEverFit(moved.request(), options_, *blocks_));
  if (groups_.contains(moved.id())) {
    return absl::AlreadyExistsError(absl::StrCat("request ", Value(moved.id()), " is already known"));
  }
  std::unique_ptr<SequenceGroup> group = std::move(moved.group_);
  group->EnterScheduler(waiting_.RankOf(group->request(), num_adopted_++), [this] { return forks_.NewSequenceId(); });
  Insert(std::move(group), /*runs=*/false);
  if (!suspects_.empty()) SuspendCleared();
  return absl::OkStatus();
}

// The rows of the samples are taken first, so that no other request takes them as spare rows.
std::vector<std::pair<RequestId, absl::Status>> Scheduler::Restore(std::vector<RestoredRequest> restored) {
  QUIRE_CHECK(groups_.empty() && Value(next_step_) == 1) << groups_.size() << " requests are known";
  std::vector<std::pair<RequestId, absl::Status>> refused;
  std::vector<SequenceGroup*> running;
  std::vector<RowId> taken;
  for (RestoredRequest& request : restored) {
    for (const RestoredRequest::Sample& sample : request.samples) {
      forks_.SkipTo(sample.sequence);
      taken.push_back(sample.row);
      rows_.OnTaken(sample.row, request.request.id);
    }
    for (const RowId row : request.ended_rows) rows_.OnTaken(row, request.request.id);
    running_.KeepRows(request.ended_rows);
  }
  running_.TakeRows(taken);
  for (RestoredRequest& request : restored) {
    const ServiceRank rank = waiting_.RankOf(request.request, num_adopted_++);
    const SequenceId first = request.samples.empty() ? forks_.NewSequenceId() : request.samples[0].sequence;
    const bool runs = !request.samples.empty();
    SequenceGroup* const group = Insert(MakeRestoredGroup(&request, rank, first), runs);
    if (runs) running.push_back(group);
    const absl::Status status = CheckCanEverFit(group->request(), options_, *blocks_);
    if (status.ok()) continue;
    refused.emplace_back(group->id(), status);
    std::erase(running, group);
    Remove(group);
  }
  for (SequenceGroup* const group : running) Resume(group);
  running_.EraseSuspended();
  return refused;
}

void Scheduler::Resume(SequenceGroup* group) {
  // Otherwise each sample would get blocks of its own for the prompt, and together they could need more than the pool.
  if (!SharesPrompt(*group, *blocks_)) return Suspend(group, /*keeps_blocks=*/false);
  std::vector<BlockCopy> copies;
  for (const auto& sequence : group->sequences()) {
    // Blocks for the whole context, as admission takes them. A block that others share is copied by the plan that
    // writes to it.
    const int first_unstored =
        NumBlocksFor(sequence->num_computed_tokens(), blocks_->block_size()) * blocks_->block_size();
    const int num_tokens = std::max(first_unstored, sequence->num_known_tokens());
    if (!blocks_->Allocate(sequence->id(), first_unstored, num_tokens, &copies)) {
      return Suspend(group, /*keeps_blocks=*/false);
    }
  }
  QUIRE_CHECK(copies.empty()) << group->id();
  if (running_.num_free_rows() < group->num_rows() - group->num_sequences()) {
    return Suspend(group, /*keeps_blocks=*/false);
  }
  for (int i = group->num_sequences(); i < group->num_rows(); ++i) group->AddSpareRow(running_.TakeRow());
  for (const auto& sequence : group->sequences()) running_.SetOwner(sequence->row(), group, sequence.get());
}

void Scheduler::KeepRows(RequestId request, const std::vector<RowId>& rows) {
  running_.KeepRows(rows);
  for (const RowId row : rows) rows_.OnTaken(row, request);
  rows_.OnFinished(request);
}

void Scheduler::EndRows(absl::Span<const RowId> rows) {
  for (const RowId row : rows) rows_.EndRow(row);
}

SchedulerCounts Scheduler::counts() const {
  return {.waiting = waiting_.size(),
          .running = running_.size(),
          .swapped = waiting_.num_swapped(),
          .free_rows = running_.num_free_rows(),
          .suspects = suspects_.size(),
          .waiting_tokens = waiting_.num_tokens(),
          .entered = admission_.num_entered(),
          .entered_tokens = admission_.num_entered_tokens(),
          .preemptions = num_preemptions_,
          .swap_outs = num_swap_outs_,
          .forks = forks_.num_forks(),
          .scheduled_tokens = num_scheduled_tokens_,
          .recomputed_tokens = num_recomputed_tokens_,
          .cached_tokens = admission_.num_tokens_from_cache()};
}

std::optional<WaitReason> Scheduler::ExplainWait(RequestId request) {
  SequenceGroup* group = Find(request);
  if (group == nullptr) return std::nullopt;
  WaitReason reason = admission_.Explain(group, next_step_);
  const std::optional<TenantBlocks> held = HeldByTenants();
  if (held.has_value() && !group->is_running() && !held->HasRoomFor(*group)) {
    reason.kind = WaitReason::Kind::kTenantShare;
    reason.num_counted_blocks = held->NumBlocks(*group);
    reason.num_tenant_blocks = held->NumHeld(group->request().tenant);
    reason.max_tenant_blocks = held->Limit(group->request().tenant);
  }
  // While a suspect runs alone, everybody else waits for it, whatever else is missing.
  const bool is_next = suspects_.empty() || group == suspects_.newest();
  if (!is_next && !group->is_running()) reason.kind = WaitReason::Kind::kBehindOthers;
  return reason;
}

std::vector<RequestId> Scheduler::FirstWaiting(int max_requests,
                                               absl::FunctionRef<bool(const SequenceGroup&)> may) const {
  std::vector<std::pair<ServiceRank, RequestId>> found;
  waiting_.ForEach([&](SequenceGroup* group) {
    if (group->is_swapped() || group->has_slices_in_flight() || !may(*group)) return;
    found.emplace_back(group->rank(), group->id());
  });
  const auto end = found.begin() + std::min<ptrdiff_t>(max_requests, std::ssize(found));
  std::partial_sort(found.begin(), end, found.end());
  std::vector<RequestId> requests;
  for (auto it = found.begin(); it != end; ++it) requests.push_back(it->second);
  return requests;
}

void Scheduler::ForEachRunning(absl::FunctionRef<void(const SequenceGroup&)> call) const {
  for (const SequenceGroup* group : running_.groups()) call(*group);
}

void Scheduler::ForEachGroup(absl::FunctionRef<void(const SequenceGroup&)> call) const {
  ForEachRunning(call);
  waiting_.ForEach([&](SequenceGroup* group) { call(*group); });
}

Scheduler::Occupant Scheduler::OccupantOf(RowId row) const {
  const RunningSet::RowOwner& owner = running_.OwnerOf(row);
  if (owner.sequence == nullptr) return {};
  return {owner.group->id(), owner.sequence};
}

void Scheduler::SendTableAgain(RowId row, SequenceId sequence) {
  const RunningSet::RowOwner& owner = running_.OwnerOf(row);
  if (owner.sequence != nullptr && owner.id == sequence) owner.sequence->ForgetSentTable();
}

void Scheduler::Release(SequenceGroup* group, Sequence* sequence) {
  // A sequence that waits shares blocks that are not computed yet: they must not be cached.
  if (group->is_running() && !group->KeepsWaiting(sequence)) Publish(sequence);
  blocks_->Free(sequence->id());
  if (!sequence->has_slices_in_flight() || group->request().bypass_prefix_cache) return;
  ended_.emplace(sequence->id(), EndedSequence{group->request().cache_salt, std::move(*sequence).TakeTokens(),
                                               sequence->num_slices_in_flight()});
}

void Scheduler::RemoveSequence(SequenceGroup* group, Sequence* sequence, bool has_finished) {
  if (group->num_sequences() == 1) return Remove(group, has_finished);
  const SequenceId id = sequence->id();
  const int num_computed = sequence->num_computed_tokens();
  for (const auto& sibling : group->sequences()) {
    if (sibling->wait.has_value() && sibling->wait->sequence == id) KeepsWaiting(group, sibling.get());
  }
  if (group->is_running()) running_.FreeRowOf(*sequence);
  Release(group, sequence);
  group->Erase(sequence);
  bool is_broken = false;
  for (const auto& sibling : group->sequences()) {
    if (!sibling->wait.has_value() || sibling->wait->sequence != id) continue;
    if (num_computed < sibling->wait->num_tokens) is_broken = true;
    sibling->wait.reset();
  }
  if (!is_broken) return;
  // Nobody will compute the tokens that these siblings wait for, so the group starts again without them.
  QUIRE_CHECK(group->is_running()) << group->id() << " has lost what it waits for";
  Suspend(group, /*keeps_blocks=*/false);
  running_.EraseSuspended();
}

void Scheduler::Suspend(SequenceGroup* group, bool keeps_blocks) {
  running_.Suspend(group, keeps_blocks ? SequenceGroup::State::kSwapped : SequenceGroup::State::kWaiting);
  for (const auto& sequence : group->sequences()) {
    if (!keeps_blocks) blocks_->Free(sequence->id());
    sequence->LeaveRow(keeps_blocks);
  }
  waiting_.Add(group);
}

void Scheduler::Remove(SequenceGroup* group, bool has_finished) {
  if (has_finished) {
    rows_.OnFinished(group->id());
  } else {
    rows_.End(group->id());
  }
  const std::unique_ptr<SequenceGroup> removed = Extract(group);
  for (const auto& sequence : group->sequences()) Release(group, sequence.get());
}

SequenceGroup* Scheduler::Find(RequestId request) const {
  auto it = groups_.find(request);
  return it == groups_.end() ? nullptr : it->second.get();
}

}  // namespace quire
