// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_CACHE_ROOT_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_CACHE_ROOT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "scheduler/step_plan.h"

namespace quire {

// Returns how SequenceStart.cache_root of worker.proto names a root.
std::string NameOf(const CacheRoot& root);
// The salt of a root with this name. Nothing for a private root and for all other names.
std::optional<std::string> SaltOfRoot(absl::string_view name);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_CACHE_ROOT_H_
