// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_STEP_LIMIT_H_
#define QUIRE_SCHEDULER_STEP_LIMIT_H_

#include <cstdint>

namespace quire {

// What the next plan can compute. A sequence that needs one token counts as a decode. A sequence that needs several is
// called a prompt here, also when a preemption has thrown its tokens away.
struct StepDemand {
  int num_decodes = 0;            // Running sequences.
  int num_prompts = 0;            // Running sequences, and waiting requests for which there are rows.
  int64_t uncomputed_tokens = 0;  // The tokens that the prompts still need.
  int64_t prompt_tokens = 0;      // The same with the tokens that plans have computed.
};

// Limits the tokens of a plan, so that its step does not take too long. The model is that a step of n tokens takes
// fixed_us + us_per_token * n.
//
// While no sequence decodes, only max_prompt_step_us limits the step. While sequences decode, each token of a prompt
// makes all of them wait, and a prompt that gets few tokens per step needs many steps, each of which reads all weights.
// The rule minimizes the time that callers wait for their next token, summed over all callers and integrated over
// time. With
//
//   D  sequences that decode,               c  the time of a token, us_per_token,
//   W  prompts, and P tokens of them,       g = fixed_us + c * D, the time of a step without tokens of prompts,
//
// and m tokens of prompts in each step, a step takes g + c * m, and the prompts end after L = (g + c * m) * P / m. At
// any moment within L, each decode waits on average c * m / 2 longer for its next token than without the prompts, and
// each prompt waits on average L / 2. So the decodes lose D * L * c * m / 2, and the prompts lose W * L * L / 2. Two
// things are added. A caller who has seen no token yet counts kFirstTokenWeight times. And one more prompt counts, for
// the next request that comes before L is over. The sum is least when x = c * m / g, which says how much longer a step
// takes because of the prompts, solves
//
//   x^3 / (1 + x) = 2 * kFirstTokenWeight * (W + 1) * P * c / (g * D).
//
// Thus many decodes make the chunks small. Long prompts, many prompts and a long fixed time make them large. If the
// step would take longer than max_step_us, m is reduced to what fits. Then the tokens that are left are divided equally
// among the number of steps that they need anyway, which gives shorter steps and the same time to the first token.
//
// Example: with fixed_us = 30,000, us_per_token = 1000, 10 decodes and one prompt of 400 tokens, g = 40,000, the right
// side is 2 * 2 * 2 * 400 * 1000 / (40,000 * 10) = 8, x = 3.24 and m = 129. That needs 4 steps, so a step has 10 + 100
// tokens and takes 140 ms.
//
// A value without state. Equal arguments give equal results.
struct StepLimit {
  static constexpr double kFirstTokenWeight = 2;
  // Number of tokens that a plan may always have in addition to one for each running sequence.
  static constexpr int kMinPromptTokens = 32;

  double fixed_us = 0;
  double us_per_token = 0;        // 0: no time is known, and plans have no limit.
  double max_step_us = 0;         // While sequences decode.
  double max_prompt_step_us = 0;  // Otherwise.

  // At least num_decodes + kMinPromptTokens.
  int MaxTokens(const StepDemand& demand) const;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STEP_LIMIT_H_
