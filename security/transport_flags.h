#ifndef QUIRE_SECURITY_TRANSPORT_FLAGS_H_
#define QUIRE_SECURITY_TRANSPORT_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/flags.h"
#include "security/tls_files.h"

namespace quire {

// How a server's port is guarded.
struct Transport {
  TlsFiles tls = {};         // Without a certificate: plain text. With an authority clients need a certificate.
  bool is_insecure = false;  // Anybody may come in, from anywhere.
};

// --tls-cert, --tls-key, --tls-ca and --insecure, as both services have them.
FlagGroup TransportFlagGroup();

// What these flags say. INVALID_ARGUMENT when clients on other machines could reach `listen` without TLS, or without
// having to say who they are; `has_other_proof`: they must do so by something other than a certificate.
absl::StatusOr<Transport> ReadTransportFlags(const std::string& listen, bool has_other_proof);

}  // namespace quire

#endif  // QUIRE_SECURITY_TRANSPORT_FLAGS_H_
