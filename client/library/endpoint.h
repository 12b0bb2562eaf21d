// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_ENDPOINT_H_
#define QUIRE_CLIENT_LIBRARY_ENDPOINT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quire {

// Checks the form of an endpoint: host:port, [IPv6]:port, unix:path, or a gRPC name such as dns:///host:port.
// INVALID_ARGUMENT names in one line what is wrong and what was expected. It does not look up names or connect.
absl::Status CheckEndpoint(absl::string_view endpoint);

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_ENDPOINT_H_
