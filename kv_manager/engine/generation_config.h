// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_GENERATION_CONFIG_H_
#define QUIRE_KV_MANAGER_ENGINE_GENERATION_CONFIG_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv_manager/engine/served_model.h"

namespace quire {

// Reads the defaults for sampling from the generation_config.json of a checkpoint: the recommended ones of
// kSamplingFields, and max_new_tokens. Missing fields and nulls give no default, and all other fields are ignored, also
// do_sample, as in vLLM. Returns FAILED_PRECONDITION, with the field, the value and the range, when a value is one that
// no request could have. A top_k above `vocab_size` keeps all tokens.
absl::StatusOr<SamplingDefaults> ParseGenerationConfig(absl::string_view json, int vocab_size);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_GENERATION_CONFIG_H_
