// What Scheduler does with results.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "scheduler/scheduler.h"
#include "scheduler/stop.h"

namespace quire {

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
    if (!plan.slices[i].has_candidates && !result.slices[i].candidates.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("slice ", i, " of step ", Value(plan.step), " has 0 candidates, ",
                                                     "its result has ", result.slices[i].candidates.size()));
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
    PrefetchOwners(plan, i);
    CommitSlice(plan.slices[i], std::move(result.slices[i]), &output);
  }
  return output;
}

// In three turns, as each needs to read what the one before has fetched.
void Scheduler::PrefetchOwners(const PlanInFlight& plan, size_t slice) const {
  const auto owner = [&](size_t turns) -> const RowOwner* {
    const size_t i = slice + turns * kPrefetchDistance;
    return i < plan.slices.size() ? &row_owners_[Value(plan.slices[i].row)] : nullptr;
  };
  __builtin_prefetch(owner(3));
  if (const RowOwner* second = owner(2); second != nullptr && second->sequence != nullptr) {
    second->group->Prefetch();
    second->sequence->Prefetch();
  }
  if (const RowOwner* third = owner(1); third != nullptr && third->sequence != nullptr) third->sequence->PrefetchEnd();
}

void Scheduler::CommitSlice(const SliceInFlight& slice, SliceResult result, StepOutput* output) {
  const RowOwner& owner = row_owners_[Value(slice.row)];
  SequenceGroup* group = owner.group;
  Sequence* sequence = owner.sequence;
  if (owner.id != slice.sequence) {  // It was preempted, or has ended.
    group = Find(slice.request);
    sequence = group == nullptr ? nullptr : group->Find(slice.sequence);
  }
  if (sequence == nullptr) return;  // It ended after the slice was planned.
  sequence->OnSliceCommitted(slice.sample);
  if (!group->has_started) {
    group->has_started = true;
    output->started.push_back({slice.request, group->num_cached_tokens});
  }
  EmitPromptLogprobs(slice, std::move(result.prompt_logprobs), group, output);
  if (!slice.sample) return;
  const int position = slice.first_position + slice.num_tokens;
  QUIRE_CHECK_EQ(position, sequence->num_known_tokens()) << slice.sequence;
  if (slice.has_candidates) {
    sequence->candidates = std::move(result.candidates);
    const bool are_all_there = std::all_of(group->sequences().begin(), group->sequences().end(),
                                           [](const auto& beam) { return beam->candidates.has_value(); });
    if (are_all_there) AdvanceBeams(group, output);
    return;
  }
  const TokenId token = result.token.token;
  sequence->Append(token);
  output->emissions.push_back({slice.request, sequence->sample_index(), position, std::move(result.token)});
  if (auto reason = StopReason(group->request(), sequence->num_generated_tokens(), token)) {
    const bool is_last = group->num_sequences() == 1;
    output->finished.push_back({slice.request, sequence->sample_index(), *reason, /*ends_request=*/is_last});
    RemoveSequence(group, sequence);
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

void Scheduler::AdvanceBeams(SequenceGroup* group, StepOutput* output) {
  BeamSearch& search = *group->beam_search();
  std::vector<std::vector<TokenLogprob>> candidates;
  for (const auto& beam : group->sequences()) {
    candidates.push_back(*std::exchange(beam->candidates, std::nullopt));
  }
  const std::vector<BeamSearch::Extension> extensions = search.Advance(candidates);
  if (search.is_done()) {
    EmitHypotheses(*group, output);
    return Remove(group);
  }
  for (int rank = 0; rank < group->request().beam->num_return; ++rank) {
    EmitBeam(*group, rank, search.agreed_tokens(), search.agreed_logprobs(), output);
  }
  group->num_emitted_tokens = static_cast<int>(search.agreed_tokens().size());
  ReplaceBeams(group, extensions);
}

// Dead beams go first: their blocks and rows are for the children of the survivors. The last child of a beam is the
// beam itself, and goes on in its row.
void Scheduler::ReplaceBeams(SequenceGroup* group, const std::vector<BeamSearch::Extension>& extensions) {
  SequenceGroup::Sequences old = group->TakeSequences();
  std::vector<int> num_children(old.size(), 0);
  for (const BeamSearch::Extension& extension : extensions) ++num_children[extension.parent];
  for (size_t i = 0; i < old.size(); ++i) {
    if (num_children[i] > 0) continue;
    blocks_->Free(old[i]->id());
    if (!group->is_running) continue;
    ReleaseRow(*old[i]);
    group->spare_rows.push_back(old[i]->row());
  }
  SequenceGroup::Sequences beams(extensions.size());
  for (size_t i = 0; i < extensions.size(); ++i) {
    Sequence& parent = *old[extensions[i].parent];
    if (--num_children[extensions[i].parent] == 0) continue;
    beams[i] = std::make_unique<Sequence>(parent.Fork(NewSequenceId(), /*sample_index=*/0));
    blocks_->Fork(parent.id(), beams[i]->id(), parent.num_computed_tokens());
    parent.OnShared();
    if (group->is_running) beams[i]->ForkRow(group->TakeSpareRow(), parent.row());
    ++counts_.forks;
  }
  for (size_t i = 0; i < extensions.size(); ++i) {
    if (beams[i] == nullptr) beams[i] = std::move(old[extensions[i].parent]);
    beams[i]->Append(extensions[i].token);
    beams[i]->has_pending_append = group->is_running;
  }
  group->SetSequences(std::move(beams));
}

void Scheduler::EmitHypotheses(const SequenceGroup& group, StepOutput* output) const {
  const std::vector<BeamSearch::Hypothesis> hypotheses = group.beam_search()->Best();
  for (size_t rank = 0; rank < hypotheses.size(); ++rank) {
    const BeamSearch::Hypothesis& hypothesis = hypotheses[rank];
    EmitBeam(group, static_cast<int>(rank), hypothesis.tokens, hypothesis.logprobs, output);
    output->finished.push_back({group.id(), static_cast<int>(rank), hypothesis.reason,
                                /*ends_request=*/rank + 1 == hypotheses.size(), hypothesis.score});
  }
}

// Those of the generated `tokens` that were not emitted yet.
void Scheduler::EmitBeam(const SequenceGroup& group, int rank, const std::vector<TokenId>& tokens,
                         const std::vector<float>& logprobs, StepOutput* output) const {
  const Request& request = group.request();
  const bool has_logprobs = request.sampling.num_logprobs >= 0;
  for (int i = group.num_emitted_tokens; i < static_cast<int>(tokens.size()); ++i) {
    const int position = static_cast<int>(request.prompt.size()) + i;
    output->emissions.push_back(
        {request.id, rank, position, ScoredToken{tokens[i], has_logprobs ? logprobs[i] : 0, 0, {}}});
  }
}

void Scheduler::AbandonAll() {
  plans_in_flight_.clear();
  blocks_->OnStepsAbandoned();
  next_step_ = StepId{1};
  for (SequenceGroup* group : running_) Suspend(group, /*keeps_blocks=*/false);
  running_.clear();
  waiting_.ForEach([](SequenceGroup* group) { group->OnSlicesAbandoned(); });
  counts_.swapped = 0;
}

}  // namespace quire
