// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_GENERATION_H_
#define QUIRE_TESTS_WORKER_GENERATION_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "tests/worker/plan_builder.h"
#include "tests/worker/test_worker.h"

namespace quire {

// A sequence to generate. It is alone in its session.
struct GenerationRequest {
  std::vector<TokenId> prompt;
  v1::RowSampling sampling = Greedy();
  int num_tokens = 8;
  std::vector<int> chunks = {};  // Prompt tokens per step; empty: all in one.
  uint32_t row = 0;
  uint32_t first_block = 0;
  uint32_t sample_index = 0;
};

struct Generation {
  std::vector<TokenId> tokens;           // Generated.
  std::vector<v1::ScoreColumns> scores;  // Per step that sampled.
  v1::ScoreColumns prompt_scores;        // All positions of the prompt from 1 on.
};

// Resets the worker's executor and generates the sequence. An error ends the test program.
Generation Generate(TestWorker* worker, const GenerationRequest& request);

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_GENERATION_H_
