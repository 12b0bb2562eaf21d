// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_UNSUPPORTED_MODEL_H_
#define QUIRE_WORKER_MODEL_UNSUPPORTED_MODEL_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/model/gguf.h"

namespace quire {

// Where the documents list the models that can be served. It ends errors about a model of another kind.
inline constexpr char kModelList[] = "; docs/serving.md#models lists the supported models";

// Returns the error for a config.json whose architecture has no decoder here. It is one line with the architecture, the
// fields and values that tell what the model has and this program has not, such as experts, and where the supported
// models are listed. If a part of the model is a text model that is supported, it says so. REQUIRES: `root` is an
// object.
absl::Status UnsupportedModel(const nlohmann::json& root);

// Returns the same for a GGUF file with this architecture. If safetensors of such a model can be served, it says so.
absl::Status UnsupportedGgufModel(const GgufContents& contents, const std::string& architecture);

// Returns why a key of a GGUF file is refused, without the architecture in front of it, such as "expert_count".
std::string RefusalOfGgufKey(std::string_view key);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_UNSUPPORTED_MODEL_H_
