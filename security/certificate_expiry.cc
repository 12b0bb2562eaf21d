// SPDX-License-Identifier: Apache-2.0

#include "security/certificate_expiry.h"

#include <openssl/err.h>

#include <ctime>

namespace quire {

std::optional<absl::Time> ExpiryOf(const X509& certificate) {
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &end) != 1) {
    ERR_clear_error();
    return std::nullopt;
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

}  // namespace quire
