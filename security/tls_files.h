// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_TLS_FILES_H_
#define QUIRE_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace quire {

// The PEM files of one side of a TLS connection; an empty path means that there is no such file. They are read again
// when they change, so that a certificate can be renewed without a restart.
struct TlsFiles {
  std::string certificate = "";  // The side's own certificate, followed by intermediate authorities.
  std::string key = "";          // The private key of `certificate`, not encrypted.
  std::string authority = "";    // Certificates of authorities. One of them must have issued the other side's.

  bool operator==(const TlsFiles&) const = default;
};

// Checks that the files can be used now: they can be read, the key belongs to the certificate, and the certificate is
// valid at this time. Otherwise returns INVALID_ARGUMENT with the name of the flag, which is `prefix` and "cert", "key"
// or "ca", as in "--tls-key: /a/key.pem is not the key of /a/cert.pem".
absl::Status CheckTlsFiles(const TlsFiles& files, absl::string_view prefix);

// Returns when the validity of the first certificate in a PEM file ends, or INVALID_ARGUMENT when the file has none.
absl::StatusOr<absl::Time> CertificateExpiry(const std::string& path);

}  // namespace quire

#endif  // QUIRE_SECURITY_TLS_FILES_H_
