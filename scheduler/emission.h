// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_EMISSION_H_
#define QUIRE_SCHEDULER_EMISSION_H_

#include <vector>

#include "scheduler/sequence_group.h"
#include "scheduler/step_output.h"
#include "scheduler/step_plan.h"

namespace quire {

// These functions append to `output` what the callers have not been told yet, and advance SequenceGroup::progress().

// `logprobs` belong to consecutive positions of the prompt, from `first_position` on. Those that were emitted before a
// preemption are not repeated.
void EmitPromptLogprobs(SequenceGroup* group, int first_position, std::vector<ScoredToken> logprobs,
                        StepOutput* output);

// The tokens of a running beam search on which all hypotheses agree, once for every hypothesis that will be returned.
void EmitAgreedTokens(SequenceGroup* group, StepOutput* output);

// The remaining tokens of the returned hypotheses, and their ends. REQUIRES: the beam search is done.
void EmitHypotheses(const SequenceGroup& group, StepOutput* output);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_EMISSION_H_
