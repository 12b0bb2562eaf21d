#ifndef QUIRE_TESTS_E2E_INSTALLATION_H_
#define QUIRE_TESTS_E2E_INSTALLATION_H_

#include <string>
#include <vector>

#include "tests/e2e/cluster.h"
#include "tests/security/certificates.h"

namespace quire {

// The certificates of a whole installation, from one authority, and its tokens: each tenant's is "token-of-" and its
// name. Files live as long as this.
class Installation {
 public:
  Installation();

  // Renews all certificates as Kubernetes does it: new files in a new directory, to which a link is moved.
  void Renew();

  // Of quire-manager, quire-worker, quire-client or quire-admin.
  TlsFiles Of(const std::string& name) const;
  TestAuthority& authority() { return authority_; }
  const TemporaryDirectory& directory() const { return directory_; }

  // Makes the file of tokens anew: those of the tenants, and an operator's of tenant "ops".
  void WriteTokens(const std::vector<std::string>& tenants);
  static std::string TokenOf(const std::string& tenant) { return "token-of-" + tenant; }
  std::string tokens() const { return directory_ / "tokens"; }

  // "--tls-cert=... --tls-key=... --tls-ca=...".
  static std::vector<std::string> Flags(const TlsFiles& files, const std::string& prefix = "--tls-");

  // A cluster with certificates on both connections; its client is an operator.
  ClusterOptions MutualTls() const;

 private:
  const TemporaryDirectory directory_;
  TestAuthority authority_;
  int version_ = 0;
};

}  // namespace quire

#endif  // QUIRE_TESTS_E2E_INSTALLATION_H_
