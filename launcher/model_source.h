// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_LAUNCHER_MODEL_SOURCE_H_
#define QUIRE_LAUNCHER_MODEL_SOURCE_H_

#include <string>

#include "absl/status/statusor.h"

namespace quire {

// Where the model that a user has named comes from.
struct ModelSource {
  std::string model;  // The value of the worker's --model: a path that exists, or hf:owner/name.
  bool is_of_hub = false;
};

// Reads "hf:owner/name", a path, or "owner/name" without hf:. What exists as a file or a folder is a path. So is what
// begins like a path or lies in a folder that exists, where a typing error is likelier than a model of the hub. Returns
// INVALID_ARGUMENT when there is no such path. The name itself is checked by quire-download.
absl::StatusOr<ModelSource> FindModel(const std::string& typed);

}  // namespace quire

#endif  // QUIRE_LAUNCHER_MODEL_SOURCE_H_
