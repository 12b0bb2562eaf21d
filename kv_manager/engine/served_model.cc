// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/served_model.h"

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace quire {

bool ServedModel::has_exact_numerics() const {
  // The part before the first slash names the weights.
  const size_t slash = numerics_fingerprint.find('/');
  const absl::string_view backend =
      absl::string_view(numerics_fingerprint).substr(slash == std::string::npos ? 0 : slash);
  return !absl::StrContains(backend, "tuned");
}

}  // namespace quire
