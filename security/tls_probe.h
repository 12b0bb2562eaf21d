#ifndef QUIRE_SECURITY_TLS_PROBE_H_
#define QUIRE_SECURITY_TLS_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/tls_files.h"

namespace quire {

// Shakes hands as a gRPC client with these files would, on a connected socket that stays the caller's, waits for the
// first byte that the server sends inside of TLS, and returns when the certificate that it shows ends. UNAVAILABLE when
// it does not speak TLS or takes longer than `timeout` in all, UNAUTHENTICATED when its certificate is not from the
// authority, not valid now or not for `name` (a DNS name or an IP address; empty: any), PERMISSION_DENIED when it has
// ended the connection after the handshake, as it does when it refuses our certificate or misses one.
// Leaves the socket in non-blocking mode.
absl::StatusOr<absl::Time> ProbeTls(int socket, const TlsFiles& files, const std::string& name, absl::Duration timeout);

}  // namespace quire

#endif  // QUIRE_SECURITY_TLS_PROBE_H_
