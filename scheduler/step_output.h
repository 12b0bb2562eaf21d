// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_STEP_OUTPUT_H_
#define QUIRE_SCHEDULER_STEP_OUTPUT_H_

#include <optional>
#include <vector>

#include "base/ids.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// One token that a sequence has emitted.
struct Emission {
  RequestId request;
  int sample_index;
  int position;  // Position of the token in the sequence, counting the prompt.
  ScoredToken token;

  bool operator==(const Emission&) const = default;
};

struct PromptLogprobs {
  RequestId request;
  int first_position;  // Position of the first entry. Entries are consecutive.
  std::vector<ScoredToken> tokens;

  bool operator==(const PromptLogprobs&) const = default;
};

// The embedding of a request with a pooling.
struct Embedding {
  RequestId request;
  std::vector<float> values;  // [embedding_size]

  bool operator==(const Embedding&) const = default;
};

struct Finished {
  RequestId request;
  int sample_index;  // In a beam search this is the rank of the hypothesis, 0 for the best.
  FinishReason reason;
  bool ends_request;  // No other sample of the request is left.
  float score = 0;    // In a beam search this is the sum of the logprobs / length^length_penalty.

  bool operator==(const Finished&) const = default;
};

// A request that has run for the first time.
struct Started {
  RequestId request;
  int num_cached_tokens;  // Tokens of its prompt that were in the prefix cache.

  bool operator==(const Started&) const = default;
};

// A request that has left the scheduler because the worker has ended one of its sequences.
struct FailedRequest {
  RequestId request;
  std::optional<int> sample_index;  // Set when the request has several samples and one of them has failed.
  SequenceFailure failure;

  bool operator==(const FailedRequest&) const = default;
};

// What one committed step means for the callers. Every position of a sequence is emitted exactly once and in order,
// whatever happens to its blocks or its worker. This also applies to every position of the prompt from 1 on when prompt
// logprobs are requested. Nothing follows the Finished of a sample. Beams are emitted as far as all hypotheses that may
// still be returned agree, and to their ends when the search is over. One sample finishes for each returned hypothesis.
// Nothing follows the failure of a request, and it comes after what its samples have emitted.
struct StepOutput {
  std::vector<Emission> emissions;
  std::vector<PromptLogprobs> prompt_logprobs;
  std::vector<Embedding> embeddings;  // Each comes with the token and the end of its request.
  std::vector<Started> started;
  std::vector<Finished> finished;
  std::vector<FailedRequest> failed;

  bool operator==(const StepOutput&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STEP_OUTPUT_H_
