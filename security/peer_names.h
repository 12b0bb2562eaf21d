// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_PEER_NAMES_H_
#define QUIRE_SECURITY_PEER_NAMES_H_

#include <openssl/ssl.h>

#include <string>
#include <vector>

namespace quire {

// Returns the DNS names and URIs in the certificate that the other side of a connection has shown, as gRPC gives them
// to the Authorizer. It is empty without a certificate. A name with a NUL is left out.
std::vector<std::string> PeerNames(const SSL* tls);

// Returns whether one of the names is allowed. "*" allows any certificate, even one without names.
bool IsOneOf(const std::vector<std::string>& names, const std::vector<std::string>& allowed);

}  // namespace quire

#endif  // QUIRE_SECURITY_PEER_NAMES_H_
