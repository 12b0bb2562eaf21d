// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_ENDPOINT_H_
#define QUIRE_CLIENT_LIBRARY_ENDPOINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quire {

// Checks the form of an endpoint: host:port, [IPv6]:port, unix:path, or a gRPC name such as dns:///host:port.
// INVALID_ARGUMENT names in one line what is wrong and what was expected. It does not look up names or connect.
absl::Status CheckEndpoint(absl::string_view endpoint);

// The endpoints in a list that is separated by commas. The list of gRPC that begins with ipv4: or ipv6: is one
// endpoint.
std::vector<std::string> SplitEndpoints(absl::string_view endpoints);
// Checks all of them.
absl::Status CheckEndpoints(absl::string_view endpoints);

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_ENDPOINT_H_
