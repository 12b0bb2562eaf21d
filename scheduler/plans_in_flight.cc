// SPDX-License-Identifier: Apache-2.0

#include "scheduler/plans_in_flight.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

absl::Status CheckFailure(const SliceInFlight& slice, const SliceResult& answer) {
  if (answer.failure->sequence != slice.sequence) {
    return absl::InvalidArgumentError(absl::StrCat("sequence ", Value(answer.failure->sequence),
                                                   " is said to have failed in the place of sequence ",
                                                   Value(slice.sequence)));
  }
  if (answer.sampled || !answer.candidates.empty() || !answer.prompt_logprobs.empty() || !answer.embedding.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence ", Value(slice.sequence), " has failed, and its slice has a result"));
  }
  return absl::OkStatus();
}

absl::Status CheckPostponed(const SliceInFlight& slice, const SliceResult& answer) {
  if (!slice.sample || slice.has_embedding || answer.sampled || !answer.candidates.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a draw of sequence ", Value(slice.sequence), " is said to be postponed, and its slice ",
                     slice.sample && !slice.has_embedding ? "has a result" : "draws nothing"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PlansInFlight::CheckResult(const StepResult& result) const {
  if (plans_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("result of step ", Value(result.step), ", no plan is in flight"));
  }
  const PlanInFlight& plan = plans_.front();
  if (result.step != plan.step) {
    return absl::InvalidArgumentError(
        absl::StrCat("result of step ", Value(result.step), ", step ", Value(plan.step), " is due"));
  }
  if (result.slices.size() != plan.slices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("step ", Value(plan.step), " has ", plan.slices.size(),
                                                   " slices, its result has ", result.slices.size()));
  }
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const SliceInFlight& slice = plan.slices[i];
    const SliceResult& answer = result.slices[i];
    if (answer.failure.has_value()) {
      QUIRE_RETURN_IF_ERROR(CheckFailure(slice, answer));
      continue;
    }
    if (answer.is_postponed) QUIRE_RETURN_IF_ERROR(CheckPostponed(slice, answer));
    if (slice.is_early && !answer.is_postponed) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", Value(slice.sequence), " has drawn a token behind one whose draw was postponed"));
    }
    if (answer.sampled != (slice.sample && !answer.is_postponed)) {
      return absl::InvalidArgumentError(absl::StrCat("slice ", i, " of step ", Value(plan.step), " samples ",
                                                     slice.sample ? 1 : 0, " tokens, its result has ",
                                                     answer.sampled ? 1 : 0));
    }
    if (static_cast<int>(answer.prompt_logprobs.size()) != slice.num_prompt_logprobs) {
      return absl::InvalidArgumentError(absl::StrCat("slice ", i, " of step ", Value(plan.step), " has ",
                                                     slice.num_prompt_logprobs, " prompt logprobs, its result has ",
                                                     answer.prompt_logprobs.size()));
    }
    if (slice.has_embedding == answer.embedding.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("slice ", i, " of step ", Value(plan.step), " has ",
                                                     slice.has_embedding ? "an" : "no", " embedding, its result has ",
                                                     answer.embedding.size(), " values"));
    }
    if (!slice.has_candidates && !answer.candidates.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("slice ", i, " of step ", Value(plan.step), " has 0 candidates, ",
                                                     "its result has ", answer.candidates.size()));
    }
  }
  return absl::OkStatus();
}

PlanInFlight PlansInFlight::TakeOldest() {
  PlanInFlight plan = std::move(plans_.front());
  plans_.pop_front();
  return plan;
}

void PlansInFlight::OnPostponed(SequenceId sequence) {
  for (PlanInFlight& plan : plans_) {
    for (SliceInFlight& slice : plan.slices) slice.is_early |= slice.sequence == sequence;
  }
}

}  // namespace quire
