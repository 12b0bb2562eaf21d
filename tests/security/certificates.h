#ifndef QUIRE_TESTS_SECURITY_CERTIFICATES_H_
#define QUIRE_TESTS_SECURITY_CERTIFICATES_H_

#include <memory>
#include <string>

#include "security/tls_files.h"

namespace quire {

// A directory of its own, removed with all that is in it when this goes out of scope.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Makes the file new in one step, so that a reader sees it as it was or as it is.
void ReplaceFile(const std::string& path, const std::string& text);

// An authority that vouches for anybody, made for one test. Its certificates and keys are files in `directory`.
class TestAuthority {
 public:
  // `directory` is borrowed; `name` is that of the file.
  TestAuthority(const TemporaryDirectory& directory, const std::string& name);
  ~TestAuthority();

  // Its own certificate.
  const std::string& file() const { return file_; }

  // A new certificate and key for `dns_name`, which replace the files of an earlier one; the holder trusts those of the
  // same authority. Valid from yesterday to tomorrow, or until yesterday.
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
