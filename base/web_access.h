// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_WEB_ACCESS_H_
#define QUIRE_BASE_WEB_ACCESS_H_

#include <string>
#include <vector>

#include "base/settings.h"

namespace quire {

// What a service knows about the web around its HTTP ports. A browser of the operator lets pages of any site send
// requests to these ports.
struct WebAccess {
  std::vector<std::string> host_names = {};       // Further names of the service. "*" means any name.
  std::vector<std::string> allowed_origins = {};  // Origins whose pages may send requests. "*" means any.
};

// Adds the flags --host-names and --allowed-origins, which all services have, to the current group. An entry of a wrong
// form is an error.
void AddWebFlags(WebAccess* access, Settings* table);

}  // namespace quire

#endif  // QUIRE_BASE_WEB_ACCESS_H_
