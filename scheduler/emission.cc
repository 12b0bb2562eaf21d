// SPDX-License-Identifier: Apache-2.0

#include "scheduler/emission.h"

#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Emits the generated `tokens` that were not emitted yet, as tokens of sample `rank`.
void EmitBeam(const SequenceGroup& group, int rank, const std::vector<TokenId>& tokens,
              const std::vector<float>& logprobs, StepOutput* output) {
  const Request& request = group.request();
  const bool has_logprobs = request.sampling.num_logprobs >= 0;
  for (int i = group.progress().num_emitted_tokens; i < static_cast<int>(tokens.size()); ++i) {
    const int position = static_cast<int>(request.prompt.size()) + i;
    output->emissions.push_back(
        {request.id, rank, position, ScoredToken{tokens[i], has_logprobs ? logprobs[i] : 0, 0, {}}});
  }
}

}  // namespace

void EmitPromptLogprobs(SequenceGroup* group, int first_position, std::vector<ScoredToken> logprobs,
                        StepOutput* output) {
  int& next = group->progress().next_prompt_logprob;
  const int num_repeated = next - first_position;
  QUIRE_CHECK_GE(num_repeated, 0) << group->id();
  if (num_repeated >= static_cast<int>(logprobs.size())) return;
  logprobs.erase(logprobs.begin(), logprobs.begin() + num_repeated);
  const int first_emitted = next;
  next += static_cast<int>(logprobs.size());
  if (group->keeps_scores()) {
    group->prompt_scores().insert(group->prompt_scores().end(), logprobs.begin(), logprobs.end());
  }
  output->prompt_logprobs.push_back({group->id(), first_emitted, std::move(logprobs)});
}

void EmitAgreedTokens(SequenceGroup* group, StepOutput* output) {
  const BeamSearch& search = *group->beam_search();
  for (int rank = 0; rank < group->request().beam->num_return; ++rank) {
    EmitBeam(*group, rank, search.agreed_tokens(), search.agreed_logprobs(), output);
  }
  group->progress().num_emitted_tokens = static_cast<int>(search.agreed_tokens().size());
}

void EmitHypotheses(const SequenceGroup& group, StepOutput* output) {
  const std::vector<BeamSearch::Hypothesis> hypotheses = group.beam_search()->Best();
  for (size_t rank = 0; rank < hypotheses.size(); ++rank) {
    const BeamSearch::Hypothesis& hypothesis = hypotheses[rank];
    EmitBeam(group, static_cast<int>(rank), hypothesis.tokens, hypothesis.logprobs, output);
    output->finished.push_back({group.id(), static_cast<int>(rank), hypothesis.reason,
                                /*ends_request=*/rank + 1 == hypotheses.size(), hypothesis.score});
  }
}

}  // namespace quire
