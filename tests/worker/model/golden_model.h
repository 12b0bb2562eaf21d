// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_GOLDEN_MODEL_H_
#define QUIRE_TESTS_WORKER_MODEL_GOLDEN_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/worker/model/paged_runner.h"
#include "worker/model/model.h"

namespace quire {

// A checkpoint of tests/golden/models with what Hugging Face transformers computes from it.
struct Golden {
  std::unique_ptr<Model> model;
  std::vector<Tokens> prompts;
  std::vector<Tokens> greedy;               // The greedy continuation of each prompt.
  std::vector<std::vector<Logits>> logits;  // Of every token of each prompt.
};

// A model of longrope whose name ends in _long is loaded with the factors for long contexts. With several ranks, the
// model is what `rank` has.
Golden LoadGolden(const std::string& name, Backend* backend, const WeightRounding& rounding = {}, int rank = 0,
                  int num_ranks = 1);

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_GOLDEN_MODEL_H_
