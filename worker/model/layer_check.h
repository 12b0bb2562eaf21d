// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_LAYER_CHECK_H_
#define QUIRE_WORKER_MODEL_LAYER_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "worker/model/checkpoint.h"
#include "worker/model/config.h"

namespace quire {

// Returns a sentence with both numbers when the checkpoint has tensors of more layers than config.json. Otherwise
// returns an empty string.
std::string ExtraLayers(const ModelConfig& config, const Checkpoint& checkpoint);

// Returns a sentence with the tensors of the checkpoint that are not of the text model, or an empty string without any.
std::string SkippedTensors(const Checkpoint& checkpoint);

// Returns whether the name of a tensor says that it is of a layer beyond the ones in config.json.
bool IsOfExtraLayer(const ModelConfig& config, const std::string& name);

// Returns whether the checkpoint has an embedding and an output matrix that differ, in a number or in the type. Reads
// both until the first difference.
bool HasOwnOutput(const Checkpoint& checkpoint);

// Returns the name of the matrix that a model uses as embedding. If the output matrix is the same one, the checkpoint
// may have it under the name of either.
const char* EmbeddingName(const ModelConfig& config, const Checkpoint& checkpoint);

// Returns INVALID_ARGUMENT with the name of a tensor when the checkpoint lacks the embedding, the last norm, the output
// matrix, a whole layer, or a weight or bias of a layer that other layers have. Shapes and types are not checked.
absl::Status CheckNothingIsMissing(const ModelConfig& config, const Checkpoint& checkpoint);

// Returns INVALID_ARGUMENT when a tensor that the model does not use is a bias, the weights of a norm or a part of the
// output matrix, and would change the results. Biases of 0 and norms that multiply by 1 change nothing.
absl::Status CheckMayBeLeftOut(const ModelConfig& config, const Tensor& tensor);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_LAYER_CHECK_H_
