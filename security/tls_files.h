#ifndef QUIRE_SECURITY_TLS_FILES_H_
#define QUIRE_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace quire {

// What one side of a TLS connection has, as PEM files; "" is none. All are read again when they change, so that a
// certificate is renewed without a restart.
struct TlsFiles {
  std::string certificate = "";  // Its own, followed by those of intermediate authorities.
  std::string key = "";          // Of `certificate`, not encrypted.
  std::string authority = "";    // Of one or more authorities, one of which must vouch for the other side.

  bool operator==(const TlsFiles&) const = default;
};

// OK when the files that are given can be used now: they are there, the key belongs to the certificate, and the
// certificate is valid today. Otherwise INVALID_ARGUMENT that names the flag, `prefix` before "cert", "key" or "ca":
// "--tls-key: /a/key.pem is not the key of /a/cert.pem".
absl::Status CheckTlsFiles(const TlsFiles& files, absl::string_view prefix);

// The end of validity of the first certificate in a PEM file. INVALID_ARGUMENT when there is none.
absl::StatusOr<absl::Time> CertificateExpiry(const std::string& path);

}  // namespace quire

#endif  // QUIRE_SECURITY_TLS_FILES_H_
