// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_E2E_INSTALLATION_H_
#define QUIRE_TESTS_E2E_INSTALLATION_H_

#include <string>
#include <vector>

#include "tests/e2e/cluster.h"
#include "tests/security/certificates.h"

namespace quire {

// The certificates of a whole installation, from one authority, and its tokens. A tenant's token is "token-of-" and its
// name. The destructor deletes the files.
class Installation {
 public:
  Installation();

  // Renews all certificates as Kubernetes does: it writes new files to a new directory and then moves a link to it.
  void Renew();

  // The files of quire-manager, quire-worker, quire-client or quire-admin.
  TlsFiles Of(const std::string& name) const;
  TestAuthority& authority() { return authority_; }
  const TemporaryDirectory& directory() const { return directory_; }

  // Writes the file of tokens again, with a token for each tenant and an operator's token for the tenant "ops".
  void WriteTokens(const std::vector<std::string>& tenants);
  static std::string TokenOf(const std::string& tenant) { return "token-of-" + tenant; }
  std::string tokens() const { return directory_ / "tokens"; }

  // Returns "--tls-cert=...", "--tls-key=..." and "--tls-ca=...".
  static std::vector<std::string> Flags(const TlsFiles& files, const std::string& prefix = "--tls-");

  // Options of a cluster with certificates on both connections. Its client is an operator.
  ClusterOptions MutualTls() const;

 private:
  const TemporaryDirectory directory_;
  TestAuthority authority_;
  int version_ = 0;
};

}  // namespace quire

#endif  // QUIRE_TESTS_E2E_INSTALLATION_H_
