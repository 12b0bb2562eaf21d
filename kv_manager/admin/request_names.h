// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_REQUEST_NAMES_H_
#define QUIRE_KV_MANAGER_ADMIN_REQUEST_NAMES_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "kv_manager/requests/request_registry.h"

namespace quire {

// The names of the live requests at one moment, for messages to operators. A value.
class RequestNames {
 public:
  explicit RequestNames(const RequestRegistry& registry) : names_(registry.Names()) {}

  // "#" and the id when the request has no name any more, because its client has just left.
  std::string Of(RequestId request) const {
    const auto it = names_.find(request);
    return it == names_.end() ? absl::StrCat("#", Value(request)) : it->second;
  }

 private:
  const absl::flat_hash_map<RequestId, std::string> names_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_REQUEST_NAMES_H_
