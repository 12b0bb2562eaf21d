#ifndef QUIRE_WORKER_WORKER_LIMITS_H_
#define QUIRE_WORKER_WORKER_LIMITS_H_

#include <cstdint>

namespace quire {

// What a worker can do: constants of its life, told to the manager by Describe. Every plan is checked against them.
struct WorkerLimits {
  int max_sequences;        // Rows.
  int max_tokens_per_step;  // Sum over the slices of a plan.
  int max_context_tokens;   // Positions of one sequence.
  int vocab_size;
  int block_size;                // Tokens per block.
  uint32_t num_blocks;           // Blocks of the pool.
  uint32_t num_host_blocks = 0;  // Blocks of the host tier; 0: there is none.

  // Blocks that hold `num_tokens` tokens.
  int BlocksFor(int num_tokens) const { return (num_tokens + block_size - 1) / block_size; }
};

// Most alternatives that a row may ask for with a logprob.
inline constexpr uint32_t kMaxTopLogprobs = 1024;
// Most candidates that a row may report.

}  // namespace quire

#endif  // QUIRE_WORKER_WORKER_LIMITS_H_
