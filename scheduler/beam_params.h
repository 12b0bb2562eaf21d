// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_BEAM_PARAMS_H_
#define QUIRE_SCHEDULER_BEAM_PARAMS_H_

#include "absl/types/span.h"
#include "base/ids.h"

namespace quire {

// When a search that has `width` finished hypotheses ends although some beams are still alive. This is `early_stopping`
// of Hugging Face generate.
enum class EarlyStopping {
  kHeuristic,  // `False` there: when the best live beam, if it ended now, would not beat the worst hypothesis.
  kWhenFull,   // `True` there: immediately.
  kNever,      // "never" there: when no live beam can ever beat the worst hypothesis.
};

// Beam search parameters with the meaning that they have in Hugging Face generate.
struct BeamParams {
  int width = 4;             // num_beams, at least 1, of all groups together. 1 is greedy search.
  int num_return = 1;        // num_return_sequences, 1 .. width.
  float length_penalty = 1;  // The score of a hypothesis is the sum of its logprobs / length^length_penalty.
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
  int num_groups = 1;  // num_beam_groups. It divides width, and each group searches with width / num_groups beams.
  // Subtracted from a token's logprob for each beam of an earlier group that took the token in this step.
  float diversity_penalty = 0;

  bool operator==(const BeamParams&) const = default;
};

// A condition that ends a hypothesis in addition to the stop tokens. Usually these are stop strings.
class StopCondition {
 public:
  virtual ~StopCondition() = default;

  // Returns how many of the last tokens IsMet needs to see.
  virtual int num_tokens_needed() const = 0;

  // Returns whether the `num_tokens` generated tokens of a hypothesis end it. `last_tokens` are the last
  // num_tokens_needed() of them, or all when there are fewer. Only the last token is new: the condition was not met
  // before it.
  virtual bool IsMet(absl::Span<const TokenId> last_tokens, int num_tokens) const = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_BEAM_PARAMS_H_
