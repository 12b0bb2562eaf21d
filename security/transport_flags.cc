// SPDX-License-Identifier: Apache-2.0

#include "security/transport_flags.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/local_address.h"

ABSL_FLAG(
    std::string, tls_cert, "",
    "PEM file with this server's certificate, followed by the certificates of intermediate authorities. With it, every "
    "client must use TLS. This file, the key and the CA file are read again when they change.");
ABSL_FLAG(std::string, tls_key, "", "PEM file with the private key of --tls-cert, without a password.");
ABSL_FLAG(
    std::string, tls_ca, "",
    "PEM file with the certificates of authorities. With it, every client must show a certificate that one of them "
    "has issued.");
ABSL_FLAG(
    bool, insecure, false,
    "Allow clients on other machines without TLS or without authentication. Otherwise an address that other machines "
    "reach requires both; unix sockets and loopback addresses require neither.");

namespace quire {

FlagGroup TransportFlagGroup() {
  return {"TLS:", {"tls_cert", "tls_key", "tls_ca", "insecure"}};
}

absl::StatusOr<Transport> ReadTransportFlags(const std::string& listen, const OtherProof& other) {
  Transport transport{.tls = {absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key), absl::GetFlag(FLAGS_tls_ca)},
                      .is_insecure = absl::GetFlag(FLAGS_insecure)};
  const bool has_tls = !transport.tls.certificate.empty();
  if (!has_tls && !(transport.tls.key.empty() && transport.tls.authority.empty())) {
    return absl::InvalidArgumentError("--tls-cert is missing: --tls-key and --tls-ca mean nothing without it");
  }
  if (has_tls && transport.tls.key.empty()) return absl::InvalidArgumentError("--tls-key is missing");
  if (transport.is_insecure || IsLocalAddress(listen)) return transport;
  if (!has_tls) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen is '", listen,
                     "', which other machines could reach without TLS: set --tls-cert and --tls-key, or --insecure"));
  }
  if (transport.tls.authority.empty() && !other.is_set) {
    const std::string flag = other.flag.empty() ? "" : absl::StrCat(other.flag, ", or ");
    return absl::InvalidArgumentError(absl::StrCat("--listen is '", listen,
                                                   "', which other machines could use without authentication: set ",
                                                   flag, "--tls-ca to require certificates, or --insecure"));
  }
  return transport;
}

std::string InsecureWarning(const Transport& transport, const std::string& listen, bool has_other_proof) {
  if (!transport.is_insecure || IsLocalAddress(listen)) return "";
  const bool has_tls = !transport.tls.certificate.empty();
  const bool has_proof = has_other_proof || !transport.tls.authority.empty();
  if (has_tls && has_proof) return "";
  return absl::StrCat("--insecure is set: other machines can use ", listen, has_tls ? "" : " without TLS",
                      has_tls || has_proof ? "" : " and", has_proof ? "" : " without authentication", ".");
}

}  // namespace quire
