// SPDX-License-Identifier: Apache-2.0

#include "security/credentials.h"

#include <utility>

#include "absl/strings/match.h"
#include "base/check.h"
#include "base/local_address.h"
#include "base/status.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace quire {
namespace {

// The interval at which gRPC checks the files for changes.
constexpr unsigned kRefreshSeconds = 1;

std::shared_ptr<grpc::experimental::CertificateProviderInterface> Watch(const TlsFiles& files) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(files.key, files.certificate,
                                                                              files.authority, kRefreshSeconds);
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(const TlsFiles& files) {
  grpc::experimental::TlsServerCredentialsOptions options(Watch(files));
  options.watch_identity_key_cert_pairs();
  if (!files.authority.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Transport& transport,
                                                                               const std::string& address,
                                                                               AccessRules rules) {
  const bool has_rules = rules.require_anything();
  if (transport.tls.certificate.empty() && !has_rules) return grpc::InsecureServerCredentials();
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (transport.tls.certificate.empty()) {
    // InsecureServerCredentials would not accept rules. Local credentials do, and have no TLS either.
    QUIRE_CHECK(IsLocalAddress(address)) << address;
    const bool is_unix = absl::StartsWith(address, "unix");
    credentials = grpc::experimental::LocalServerCredentials(is_unix ? UDS : LOCAL_TCP);
  } else {
    QUIRE_RETURN_IF_ERROR(CheckTlsFiles(transport.tls, "--tls-"));
    credentials = TlsServerCredentials(transport.tls);
  }
  if (has_rules) credentials->SetAuthMetadataProcessor(MakeAuthorizer(std::move(rules)));
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> TlsChannelCredentials(const TlsFiles& files) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(files));
  options.watch_root_certs();
  if (!files.certificate.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace quire
