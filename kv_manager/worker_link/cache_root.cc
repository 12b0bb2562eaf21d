// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/cache_root.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr absl::string_view kSaltPrefix = "salt:";
constexpr absl::string_view kPrivate = "private";

}  // namespace

std::string NameOf(const CacheRoot& root) {
  return root.is_private ? std::string(kPrivate) : absl::StrCat(kSaltPrefix, root.salt);
}

std::optional<std::string> SaltOfRoot(absl::string_view name) {
  if (!absl::StartsWith(name, kSaltPrefix)) return std::nullopt;
  return std::string(name.substr(kSaltPrefix.size()));
}

}  // namespace quire
