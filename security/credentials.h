// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_CREDENTIALS_H_
#define QUIRE_SECURITY_CREDENTIALS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "security/authorizer.h"
#include "security/tls_files.h"
#include "security/transport_flags.h"

namespace quire {

// Makes credentials of a server for TLS 1.2 and 1.3. If `files` has an authority, clients must show a certificate that
// it has issued. When a file changes, new connections use it within seconds. REQUIRES: CheckTlsFiles is OK and there is
// a certificate.
std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(const TlsFiles& files);

// Makes credentials for a port at `address`, with or without TLS as `transport` says. If `rules` require anything,
// every call must satisfy them. Returns INVALID_ARGUMENT with the flag and the file when a file cannot be used.
// REQUIRES: if the rules require a token, the transport has TLS or the address is local.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Transport& transport,
                                                                               const std::string& address,
                                                                               AccessRules rules);

// Makes credentials of a client, which shows its certificate if it has one. The server's certificate must be for the
// host that the client connects to, or for the name in the channel's SetSslTargetNameOverride. REQUIRES: CheckTlsFiles
// is OK and there is an authority.
std::shared_ptr<grpc::ChannelCredentials> TlsChannelCredentials(const TlsFiles& files);

}  // namespace quire

#endif  // QUIRE_SECURITY_CREDENTIALS_H_
