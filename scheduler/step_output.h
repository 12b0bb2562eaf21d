#ifndef QUIRE_SCHEDULER_STEP_OUTPUT_H_
#define QUIRE_SCHEDULER_STEP_OUTPUT_H_

#include <vector>

#include "base/ids.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// One token that a sequence has emitted.
struct Emission {
  RequestId request;
  int sample_index;
  int position;  // Of the token in the sequence, the prompt included.
  ScoredToken token;

  bool operator==(const Emission&) const = default;
};

struct PromptLogprobs {
  RequestId request;
  int first_position;  // Of the first entry; entries are consecutive.
  std::vector<ScoredToken> tokens;

  bool operator==(const PromptLogprobs&) const = default;
};

struct Finished {
  RequestId request;
  int sample_index;  // Of a beam search: the rank of the hypothesis, 0 for the best.
  FinishReason reason;
  bool ends_request;  // It was the last sample.
  float score = 0;    // Of a beam search: the sum of the logprobs / length^length_penalty.

  bool operator==(const Finished&) const = default;
};

// A request that ran for the first time.
struct Started {
  RequestId request;
  int num_cached_tokens;  // Of its prompt.

  bool operator==(const Started&) const = default;
};

// What one committed step means for the callers. Every position of a sequence is emitted exactly once and in order,
// whatever happens to its blocks or its worker; so is every position of the prompt from 1 on when prompt logprobs are
// asked for. Nothing follows the Finished of a sample. Beams are emitted as far as all that may still be returned
// agree, and to the end when the search is over; as many samples finish as hypotheses are returned.
struct StepOutput {
  std::vector<Emission> emissions;
  std::vector<PromptLogprobs> prompt_logprobs;
  std::vector<Started> started;
  std::vector<Finished> finished;

  bool operator==(const StepOutput&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STEP_OUTPUT_H_
