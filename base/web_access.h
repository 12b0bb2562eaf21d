// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_WEB_ACCESS_H_
#define QUIRE_BASE_WEB_ACCESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

// What a service knows about the web around its HTTP ports. A browser of the operator lets pages of any site send
// requests to these ports.
struct WebAccess {
  std::vector<std::string> host_names = {};       // Further names of the service. "*" means any name.
  std::vector<std::string> allowed_origins = {};  // Origins whose pages may send requests. "*" means any.
};

// Reads the flags --host-names and --allowed-origins, which all services have. Returns INVALID_ARGUMENT with the flag
// and the entry that has a wrong form.
absl::StatusOr<WebAccess> ReadWebAccess();

}  // namespace quire

#endif  // QUIRE_BASE_WEB_ACCESS_H_
