// SPDX-License-Identifier: Apache-2.0

#include "security/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/read_file.h"
#include "base/status.h"
#include "security/certificate_expiry.h"

namespace quire {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::StatusOr<std::string> ReadFile(const std::string& flag, const std::string& path) {
  absl::StatusOr<std::string> text = quire::ReadFile(path);
  if (!text.ok()) return Bad(flag, ": ", text.status().message());
  return text;
}

// Answers OpenSSL with an empty password. Without this callback it would ask for one on the terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*is_writing*/, void* /*data*/) {
  return 0;
}

absl::StatusOr<Certificate> ReadCertificate(const std::string& flag, const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(flag, path));
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr), &X509_free);
  if (certificate == nullptr) return Bad(flag, ": ", path, " holds no certificate in PEM format");
  return certificate;
}

absl::StatusOr<Key> ReadKey(const std::string& flag, const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(flag, path));
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr), &EVP_PKEY_free);
  if (key == nullptr) return Bad(flag, ": ", path, " holds no private key in PEM format without a password");
  return key;
}

std::string AsText(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()), &BIO_free);
  ASN1_TIME_print(bio.get(), time);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files, absl::string_view prefix) {
  const std::string cert_flag = absl::StrCat(prefix, "cert");
  const std::string key_flag = absl::StrCat(prefix, "key");
  if (files.certificate.empty() != files.key.empty()) {
    return Bad(files.key.empty() ? key_flag : cert_flag, " is missing: a certificate and its key belong together");
  }
  if (!files.certificate.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(cert_flag, files.certificate));
    QUIRE_ASSIGN_OR_RETURN(const Key key, ReadKey(key_flag, files.key));
    if (X509_check_private_key(certificate.get(), key.get()) != 1) {
      return Bad(key_flag, ": ", files.key, " is not the key of ", files.certificate);
    }
    const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
    const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
    if (X509_cmp_current_time(begin) > 0)
      return Bad(cert_flag, ": ", files.certificate, " is valid only from ", AsText(begin));
    if (X509_cmp_current_time(end) < 0) return Bad(cert_flag, ": ", files.certificate, " expired ", AsText(end));
  }
  if (files.authority.empty()) return absl::OkStatus();
  return ReadCertificate(absl::StrCat(prefix, "ca"), files.authority).status();
}

absl::StatusOr<absl::Time> CertificateExpiry(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate("certificate", path));
  const std::optional<absl::Time> expiry = ExpiryOf(*certificate);
  if (!expiry.has_value()) return Bad("certificate: the end of validity in ", path, " is malformed");
  return *expiry;
}

}  // namespace quire
