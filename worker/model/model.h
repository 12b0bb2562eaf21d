// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_MODEL_H_
#define QUIRE_WORKER_MODEL_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/optional_part.h"
#include "worker/model/config.h"
#include "worker/model/pooling.h"
#include "worker/model/tokenizer_file.h"
#include "worker/model/weights.h"

namespace quire {

// A model directory or a GGUF file in memory. It is constant after loading. The backend must outlive it.
struct Model {
  ModelConfig config;
  ModelWeights weights;
  std::vector<TokenizerFile> tokenizer_files;  // The files that exist.
  CheckpointPooling pooling = {};
};

// Reads config.json and generation_config.json of a model directory, or the metadata of a GGUF file. If its weights are
// quantized and there, it also counts the stacks that are not. If the file ties the output matrix to the embedding, and
// the weights have two matrices that differ, the result has them apart. For `is_long` see ParseModelConfig.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path, bool is_long = false);

// Returns FAILED_PRECONDITION, with the missing parts, when the model needs a part of the operations that a device
// lacks. `has` tells what it has, and `device` is what it calls itself.
absl::Status CheckParts(const ModelConfig& config, absl::FunctionRef<bool(OptionalPart)> has, absl::string_view device);

// Reads these two files and the tokenizer files. The model has no weights. Warns if there is no tokenizer.
absl::StatusOr<std::unique_ptr<Model>> ReadModelFiles(const std::string& path, bool is_long = false);

// Loads a Hugging Face model directory: config.json, generation_config.json if there is one, the tokenizer files and
// the safetensors weights. Or loads a GGUF file, which contains all of this in its own forms. The weights come last,
// because they take longest. No file stays mapped.
// `progress`, if it is not null, is told how far the weights are. For `rounding` see LoadWeights, for `is_long`
// ParseModelConfig. With several ranks, loads what `rank` has (ShardOf).
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& path, Backend* backend,
                                                 LoadProgress* progress = nullptr, const WeightRounding& rounding = {},
                                                 bool is_long = false, int rank = 0, int num_ranks = 1);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_MODEL_H_
