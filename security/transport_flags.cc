// SPDX-License-Identifier: Apache-2.0

#include "security/transport_flags.h"

#include "absl/strings/str_cat.h"
#include "base/local_address.h"
#include "base/status.h"

namespace quire {

void AddTransportFlags(Transport* transport, Settings* table) {
  table->Group("TLS:");
  table->Add("tls_cert", &transport->tls.certificate,
             "PEM file with this server's certificate, followed by the certificates of intermediate authorities. "
             "With it, every client must use TLS. This file, the key and the CA file are read again when they "
             "change.");
  table->Add("tls_key", &transport->tls.key, "PEM file with the private key of --tls-cert, without a password.");
  table->Add("tls_ca", &transport->tls.authority,
             "PEM file with the certificates of authorities. With it, every client must show a certificate that one "
             "of them has issued.");
  table->Add("insecure", &transport->is_insecure,
             "Allow clients on other machines without TLS or without authentication. Otherwise an address that "
             "other machines reach requires both; unix sockets and loopback addresses require neither.");
}

absl::Status CheckTransport(const Transport& transport, const std::string& listen, const OtherProof& other) {
  const bool has_tls = !transport.tls.certificate.empty();
  if (!has_tls && !(transport.tls.key.empty() && transport.tls.authority.empty())) {
    return InvalidArgument("--tls-cert is missing: --tls-key and --tls-ca mean nothing without it");
  }
  if (has_tls && transport.tls.key.empty()) return InvalidArgument("--tls-key is missing");
  if (IsLocalAddress(listen)) return absl::OkStatus();
  if (transport.is_insecure) {
    if (has_tls || !other.is_set) return absl::OkStatus();
    return InvalidArgument(other.flag, " is set and --listen is '", listen,
                           "': tokens are not taken over a network without TLS, give --tls-cert");
  }
  if (!has_tls) {
    return InvalidArgument(
        "--listen is '", listen,
        "', which other machines could reach without TLS: set --tls-cert and --tls-key, or --insecure");
  }
  if (transport.tls.authority.empty() && !other.is_set) {
    const std::string flag = other.flag.empty() ? "" : absl::StrCat(other.flag, ", or ");
    return InvalidArgument("--listen is '", listen, "', which other machines could use without authentication: set ",
                           flag, "--tls-ca to require certificates, or --insecure");
  }
  return absl::OkStatus();
}

absl::Status CheckHasAuthority(const TlsFiles& files, absl::string_view prefix) {
  if (!files.authority.empty() || files == TlsFiles()) return absl::OkStatus();
  return InvalidArgument(prefix, "ca is missing: ", prefix, "cert and ", prefix, "key mean nothing without it");
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
