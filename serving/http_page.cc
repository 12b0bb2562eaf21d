// SPDX-License-Identifier: Apache-2.0

#include "serving/http_page.h"

#include "absl/strings/match.h"

namespace quire {
namespace {

// Removes the port from "name:port" or "[address]:port".
absl::string_view WithoutPort(absl::string_view host) {
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == host.npos ? 0 : bracket);
  return host.substr(0, colon);
}

}  // namespace

bool IsLocalUser(absl::string_view peer, absl::string_view host, bool is_forwarded) {
  // The rest of 127.0.0.0/8 does not count as local: proxies of service meshes forward remote requests from 127.0.0.6.
  if (is_forwarded || (peer != "127.0.0.1" && peer != "::1" && peer != "::ffff:127.0.0.1")) return false;
  const absl::string_view name = WithoutPort(host);
  return name == "127.0.0.1" || name == "[::1]" || absl::EqualsIgnoreCase(name, "localhost");
}

}  // namespace quire
