#ifndef QUIRE_SCHEDULER_BEAM_PARAMS_H_
#define QUIRE_SCHEDULER_BEAM_PARAMS_H_

#include "absl/types/span.h"
#include "base/ids.h"

namespace quire {

// When a search that has `width` finished hypotheses ends, although beams are still alive. (`early_stopping` of Hugging
// Face generate.)
enum class EarlyStopping {
  kHeuristic,  // False: the best live beam, were it to end now, would not beat the worst hypothesis.
  kWhenFull,   // True: at once.
  kNever,      // "never": no live beam can ever beat the worst hypothesis.
};

// Parameters as in Hugging Face generate.
struct BeamParams {
  int width = 4;             // num_beams: >= 1, all groups together. 1 is greedy search.
  int num_return = 1;        // num_return_sequences: 1 .. width.
  float length_penalty = 1;  // A hypothesis' score is the sum of its logprobs / length^length_penalty.
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
  int num_groups = 1;           // num_beam_groups: divides width. Each group searches with width / num_groups beams.
  float diversity_penalty = 0;  // Off a token's logprob for each beam of an earlier group that took it in this step.

  bool operator==(const BeamParams&) const = default;
};

// Ends a hypothesis beside the stop tokens; stop strings, in the main.
class StopCondition {
 public:
  virtual ~StopCondition() = default;

  // How many of the last tokens IsMet has to see.
  virtual int num_tokens_needed() const = 0;

  // Whether the `num_tokens` generated tokens of a hypothesis end it, given the last num_tokens_needed() of them or
  // all. The last one is new, and the tokens before it did not meet the condition.
  virtual bool IsMet(absl::Span<const TokenId> last_tokens, int num_tokens) const = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_BEAM_PARAMS_H_
