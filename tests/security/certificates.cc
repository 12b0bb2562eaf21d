// SPDX-License-Identifier: Apache-2.0

#include "tests/security/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"

namespace quire {
namespace {

constexpr long kDay = 24 * 60 * 60;

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
using Certificate = std::unique_ptr<X509, FreeCertificate>;

Key NewKey() {
  Key key(EVP_EC_gen("P-256"));
  QUIRE_CHECK(key != nullptr);
  return key;
}

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  QUIRE_CHECK(extension != nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Makes an unsigned certificate of `name` without extensions. It is valid from `begin` to `end` seconds from now.
Certificate NewCertificate(const std::string& name, EVP_PKEY* key, long begin, long end) {
  static long next_serial = 1;
  Certificate certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), next_serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), begin);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), end);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

std::string TextOf(BIO* bio) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio, &text);
  std::string copy(text, static_cast<size_t>(size));
  BIO_free(bio);
  return copy;
}

std::string Pem(X509* certificate) {
  BIO* const bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  return TextOf(bio);
}

std::string Pem(EVP_PKEY* key) {
  BIO* const bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  return TextOf(bio);
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  char path[] = "/tmp/quire-test.XXXXXX";
  QUIRE_CHECK(mkdtemp(path) != nullptr);
  path_ = path;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::filesystem::remove_all(path_);
}

void ReplaceFile(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  const std::string draft = path + ".new";
  std::ofstream(draft) << text;
  std::filesystem::rename(draft, path);
}

struct TestAuthority::Keys {
  Key key;
  Certificate certificate;
};

TestAuthority::TestAuthority(const TemporaryDirectory& directory, const std::string& name)
    : directory_(directory), file_(directory / (name + ".crt")), keys_(std::make_unique<Keys>()) {
  keys_->key = NewKey();
  keys_->certificate = NewCertificate(name, keys_->key.get(), -kDay, kDay);
  X509* const certificate = keys_->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  AddExtension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE");
  QUIRE_CHECK(X509_sign(certificate, keys_->key.get(), EVP_sha256()) != 0);
  ReplaceFile(file_, Pem(certificate));
}

TestAuthority::~TestAuthority() = default;

TlsFiles TestAuthority::Issue(const std::string& file, const std::string& dns_name, bool is_expired) {
  const Key key = NewKey();
  const Certificate certificate =
      NewCertificate(dns_name, key.get(), is_expired ? -2 * kDay : -kDay, is_expired ? -kDay : kDay);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(keys_->certificate.get()));
  AddExtension(certificate.get(), keys_->certificate.get(), NID_subject_alt_name, "DNS:" + dns_name);
  QUIRE_CHECK(X509_sign(certificate.get(), keys_->key.get(), EVP_sha256()) != 0);
  TlsFiles files{.certificate = directory_ / (file + ".crt"), .key = directory_ / (file + ".key"), .authority = file_};
  ReplaceFile(files.key, Pem(key.get()));
  ReplaceFile(files.certificate, Pem(certificate.get()));
  return files;
}

}  // namespace quire
