// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_SIMULATED_MODEL_H_
#define QUIRE_WORKER_MODEL_SIMULATED_MODEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/simulated/token_rule.h"
#include "worker/model/model.h"

namespace quire {

// Returns the rule by which a simulated worker with the model of this configuration generates tokens. Returns
// FAILED_PRECONDITION when the vocabulary is too small.
absl::StatusOr<simulated::TokenRule> TokenRuleOf(const ModelConfig& config, int mean_output_tokens);

// Reads the files of a model directory except the weights, which need not exist. The result has the vocabulary, the
// context and the tokenizer of the directory, the shape that simulated::SimulatedBackend runs, and its matrices. Its
// fingerprint is computed from config.json.
absl::StatusOr<std::unique_ptr<Model>> ReadSimulatedModel(const std::string& directory, bool is_long = false);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_SIMULATED_MODEL_H_
