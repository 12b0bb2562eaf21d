// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_TRANSPORT_FLAGS_H_
#define QUIRE_SECURITY_TRANSPORT_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/settings.h"
#include "security/tls_files.h"

namespace quire {

// How a server protects its port.
struct Transport {
  TlsFiles tls = {};  // Without a certificate, the port has no TLS. With an authority, clients need a certificate.
  bool is_insecure = false;  // Whether clients on other machines may connect without TLS or authentication.
};

// How clients can authenticate themselves to a service without a certificate.
struct OtherProof {
  std::string flag = "";  // The flag that demands it, such as --tokens. Empty: there is none.
  bool is_set = false;
};

// Adds a group with the flags --tls-cert, --tls-key, --tls-ca and --insecure, which all services have.
void AddTransportFlags(Transport* transport, Settings* table);

// Returns INVALID_ARGUMENT when the flags do not fit together, when clients on other machines could reach `listen`
// without TLS or without authentication, or when --insecure would let them send tokens there in plain text.
absl::Status CheckTransport(const Transport& transport, const std::string& listen, const OtherProof& other = {});

// Checks the files of a client: without an authority it uses no TLS, so it must have no other file. `prefix` is that of
// its flags, such as "--worker-tls-".
absl::Status CheckHasAuthority(const TlsFiles& files, absl::string_view prefix);

// A sentence about what --insecure leaves open at `listen`. Empty when it leaves nothing open there.
std::string InsecureWarning(const Transport& transport, const std::string& listen, bool has_other_proof);

}  // namespace quire

#endif  // QUIRE_SECURITY_TRANSPORT_FLAGS_H_
