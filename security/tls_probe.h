#ifndef QUIRE_SECURITY_TLS_PROBE_H_
#define QUIRE_SECURITY_TLS_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/tls_files.h"

namespace quire {

// Shakes hands as a gRPC client with these files would, on a connected socket that stays the caller's, and returns when
// the certificate that the server shows ends. UNAVAILABLE when it does not speak TLS, UNAUTHENTICATED when its
// certificate is not from the authority, not valid now or not for `name` (a DNS name or an IP address; empty: any).
// Blocks for as long as the socket's own timeouts let it.
absl::StatusOr<absl::Time> ProbeTls(int socket, const TlsFiles& files, const std::string& name);

}  // namespace quire

#endif  // QUIRE_SECURITY_TLS_PROBE_H_
