#ifndef QUIRE_WORKER_MODEL_MODEL_H_
#define QUIRE_WORKER_MODEL_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/config.h"
#include "worker/model/weights.h"

namespace quire {

// A tokenizer file as it lies in the model directory. The worker checks no more than that one named .json is JSON; the
// manager, who uses them, refuses a worker whose tokenizer it cannot use.
struct TokenizerFile {
  std::string name;  // tokenizer.json, tokenizer.model or tokenizer_config.json
  std::string contents;
};

// A model directory in memory. Immutable once loaded; the backend must outlive it.
struct Model {
  ModelConfig config;
  ModelWeights weights;
  std::vector<TokenizerFile> tokenizer_files;  // Those that exist.
};

// config.json, with what generation_config.json adds, of a model directory.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory);

// Reads a Hugging Face model directory: config.json, generation_config.json if present, the tokenizer files and, last
// because they take longest, the safetensors weights. Nothing stays mapped afterwards.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& directory, Backend* backend);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_MODEL_H_
