#ifndef QUIRE_CLIENT_ENDPOINT_H_
#define QUIRE_CLIENT_ENDPOINT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quire {

// OK for what names a manager: host:port, [IPv6]:port, unix:path, or a gRPC name such as dns:///host:port. Otherwise
// INVALID_ARGUMENT in one line that says what is wrong and what was expected. Looks nothing up and connects nowhere.
absl::Status CheckEndpoint(absl::string_view endpoint);

}  // namespace quire

#endif  // QUIRE_CLIENT_ENDPOINT_H_
