// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_POOLING_H_
#define QUIRE_WORKER_MODEL_POOLING_H_

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "worker/model/gguf.h"

namespace quire {

// How the hidden states of a prompt become one vector.
enum class PoolingKind {
  kNone,
  kLastToken,
  kMean,        // Of all tokens.
  kFirstToken,  // CLS.
};

// What the embeddings of a model are. The default is that of vLLM for a decoder whose checkpoint says nothing.
struct CheckpointPooling {
  PoolingKind kind = PoolingKind::kLastToken;
  bool normalizes = true;    // The vector is divided by its length (L2).
  std::string refusal = {};  // Set if the kind is kNone: why the model gives no embeddings.

  bool operator==(const CheckpointPooling&) const = default;
};

// Reads what Sentence Transformers writes: modules.json, and config.json in the folder of the pooling module. `read`
// returns a file of the model directory by its path, or nothing if there is none. If the modules are not supported or
// the files are wrong, the refusal names the file and the field: the model still generates text.
CheckpointPooling ReadPooling(
    absl::FunctionRef<absl::StatusOr<std::optional<std::string>>(const std::string& path)> read);

// The same for a GGUF file, which has a number in ARCHITECTURE.pooling_type.
CheckpointPooling ReadGgufPooling(const GgufContents& contents);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_POOLING_H_
