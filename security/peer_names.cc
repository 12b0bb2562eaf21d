// SPDX-License-Identifier: Apache-2.0

#include "security/peer_names.h"

#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

namespace quire {

std::vector<std::string> PeerNames(const SSL* tls) {
  std::vector<std::string> result;
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(tls), X509_free);
  if (certificate == nullptr) return result;
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS && name->type != GEN_URI) continue;
    const ASN1_STRING* const text = name->type == GEN_DNS ? name->d.dNSName : name->d.uniformResourceIdentifier;
    std::string value(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                      static_cast<size_t>(ASN1_STRING_length(text)));
    if (value.find('\0') == value.npos) result.push_back(std::move(value));
  }
  return result;
}

bool IsOneOf(const std::vector<std::string>& names, const std::vector<std::string>& allowed) {
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& name) {
    return name == "*" || std::find(names.begin(), names.end(), name) != names.end();
  });
}

}  // namespace quire
