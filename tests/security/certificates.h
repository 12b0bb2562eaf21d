// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SECURITY_CERTIFICATES_H_
#define QUIRE_TESTS_SECURITY_CERTIFICATES_H_

#include <memory>
#include <string>

#include "security/tls_files.h"

namespace quire {

// A directory that the destructor removes with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Replaces the file in one step, so that a reader sees either the old or the new contents.
void ReplaceFile(const std::string& path, const std::string& text);

// An authority for one test, which issues certificates for any name. Certificates and keys are files in `directory`.
class TestAuthority {
 public:
  // `directory` must outlive the authority. `name` is the name of its file.
  TestAuthority(const TemporaryDirectory& directory, const std::string& name);
  ~TestAuthority();

  // The path of the authority's own certificate.
  const std::string& file() const { return file_; }

  // Issues a certificate with a key for `dns_name`. They replace the files of an earlier certificate for that name. The
  // returned files trust this authority. The certificate is valid from yesterday to tomorrow, or it expired yesterday.
  TlsFiles Issue(const std::string& dns_name) { return Issue(dns_name, dns_name, /*is_expired=*/false); }
  TlsFiles Issue(const std::string& file, const std::string& dns_name, bool is_expired);

 private:
  struct Keys;

  const TemporaryDirectory& directory_;
  const std::string file_;
  const std::unique_ptr<Keys> keys_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SECURITY_CERTIFICATES_H_
