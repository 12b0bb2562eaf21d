// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_SAMPLING_H_
#define QUIRE_WORKER_MODEL_GGUF_SAMPLING_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/model/gguf.h"

namespace quire {

// Makes generation_config.json from the defaults of sampling that a GGUF file has (general.sampling.*), so that the
// manager reads them as in other checkpoints. The text is empty when the file has none. llama.cpp also knows samplers
// that Quire does not have; their keys are left out. An error names the key, its value and the allowed values.
absl::StatusOr<std::string> GgufGenerationConfig(const GgufContents& contents);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_SAMPLING_H_
