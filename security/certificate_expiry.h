// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_CERTIFICATE_EXPIRY_H_
#define QUIRE_SECURITY_CERTIFICATE_EXPIRY_H_

#include <optional>

#include "absl/time/time.h"
#include "openssl/x509.h"

namespace quire {

// Returns when the validity of the certificate ends, or nothing when its field for that is malformed.
std::optional<absl::Time> ExpiryOf(const X509& certificate);

}  // namespace quire

#endif  // QUIRE_SECURITY_CERTIFICATE_EXPIRY_H_
