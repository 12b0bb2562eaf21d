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

// TLS 1.2 or 1.3 for a server. With an authority clients must show a certificate from it. Changed files are taken up
// within seconds, by the connections that are made from then on. REQUIRES: CheckTlsFiles is OK, there is a certificate.
std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(const TlsFiles& files);

// Those of the transport, TLS or plain text, for a port at `address`. Calls are let in by `rules`, if these ask for
// anything. INVALID_ARGUMENT, with flag and file, when a file cannot be used. REQUIRES: TLS or a local address when
// rules ask for a token.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Transport& transport,
                                                                               const std::string& address,
                                                                               AccessRules rules);

// For a client, who shows its certificate if it has one. The server's certificate must be for the host that is
// connected to, or for the channel's SetSslTargetNameOverride. REQUIRES: CheckTlsFiles is OK, there is an authority.
std::shared_ptr<grpc::ChannelCredentials> TlsChannelCredentials(const TlsFiles& files);

}  // namespace quire

#endif  // QUIRE_SECURITY_CREDENTIALS_H_
