// SPDX-License-Identifier: Apache-2.0

#include "tests/e2e/installation.h"

#include <openssl/sha.h>

#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

std::string Sha256(const std::string& text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return absl::BytesToHexString(digest);
}

}  // namespace

Installation::Installation() : directory_(), authority_(directory_, "ca") {
  Renew();
}

void Installation::Renew() {
  const std::string version = absl::StrCat("v", ++version_);
  for (const char* name : {"quire-manager", "quire-worker", "quire-client", "quire-admin"}) {
    authority_.Issue(absl::StrCat(version, "/", name), name, /*is_expired=*/false);
  }
  std::filesystem::create_directory_symlink(version, directory_ / "draft");
  std::filesystem::rename(directory_ / "draft", directory_ / "live");
}

TlsFiles Installation::Of(const std::string& name) const {
  return {.certificate = directory_ / absl::StrCat("live/", name, ".crt"),
          .key = directory_ / absl::StrCat("live/", name, ".key"),
          .authority = authority_.file()};
}

void Installation::WriteTokens(const std::vector<std::string>& tenants) {
  std::string text = absl::StrCat("# Made by a test.\nops ", Sha256(TokenOf("ops")), " admin\n");
  for (const std::string& tenant : tenants) absl::StrAppend(&text, tenant, " ", Sha256(TokenOf(tenant)), "\n");
  ReplaceFile(tokens(), text);
}

std::vector<std::string> Installation::Flags(const TlsFiles& files, const std::string& prefix) {
  return {absl::StrCat(prefix, "cert=", files.certificate), absl::StrCat(prefix, "key=", files.key),
          absl::StrCat(prefix, "ca=", files.authority)};
}

ClusterOptions Installation::MutualTls() const {
  ClusterOptions options{.model = BundledModel()};
  options.worker_flags = Flags(Of("quire-worker"));
  options.manager_flags = Flags(Of("quire-manager"));
  for (std::string& flag : Flags(Of("quire-manager"), "--worker-tls-")) {
    options.manager_flags.push_back(std::move(flag));
  }
  options.client.tls = Of("quire-admin");
  options.client.server_name = "quire-manager";
  return options;
}

}  // namespace quire
