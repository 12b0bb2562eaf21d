// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_PAGED_RUNNER_H_
#define QUIRE_TESTS_WORKER_MODEL_PAGED_RUNNER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "worker/model/backend_buffer.h"
#include "worker/model/model.h"
#include "worker/model/transformer.h"

namespace quire {

using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;  // [vocab_size]

// The tokens that one sequence adds in a step.
struct Slice {
  int sequence;
  Tokens tokens;
};

// Runs steps of a model with paged KV memory, as an executor does. Block tables grow with their sequences, and blocks
// are taken from the pool in a random order that depends on the seed.
class PagedRunner {
 public:
  struct Options {
    int block_size = 16;
    KvType kv_type = KvType::kFloat32;
    uint32_t placement_seed = 1;
    int max_logit_rows = 64;
  };

  // A rank of a group runs the same steps as the other ranks at the same time.
  PagedRunner(const Model* model, Backend* backend, const Options& options, Collective* group = nullptr);

  // Returns the logits of every token of the step, slice after slice.
  std::vector<Logits> Run(const std::vector<Slice>& slices);

  // Feeds `tokens` to a sequence in chunks and returns the logits of every token.
  std::vector<Logits> Prefill(int sequence, const Tokens& tokens, int chunk_size);

  // Continues a sequence whose last logits are `logits` by the most likely token, `count` times.
  Tokens Greedy(int sequence, Logits logits, int count);

  // Makes `copy` a sequence with the tokens of `sequence`, in copies of its blocks.
  void Fork(int sequence, int copy);
  // Moves a sequence to other blocks by way of the host tier.
  void Swap(int sequence);

 private:
  struct Sequence {
    int length = 0;
    std::vector<uint32_t> blocks;
  };

  // The arrays of one step, to which the batch points.
  struct StepArrays;

  void Place(const Slice& slice, StepArrays* step);
  uint32_t TakeBlock();
  std::vector<Logits> ReadLogits(int num_rows);

  const Model& model_;
  Backend* const backend_;
  KvLayout layout_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<BackendBuffer> pools_;
  std::vector<void*> pool_pointers_;
  std::vector<uint32_t> free_blocks_;
  std::map<int, Sequence> sequences_;
};

// Returns the index of the largest element, and of the first one among equals.
int32_t ArgMax(const Logits& logits);

// Returns the largest difference divided by the largest magnitude in `expected`.
float RelativeError(const Logits& actual, const Logits& expected);
// Returns the largest of these over all tokens.
float LargestError(const std::vector<Logits>& actual, const std::vector<Logits>& expected);

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_PAGED_RUNNER_H_
