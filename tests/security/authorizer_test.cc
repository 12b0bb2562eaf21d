// SPDX-License-Identifier: Apache-2.0

#include "security/authorizer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/security/certificates.h"

namespace quire {
namespace {

using Code = absl::StatusCode;

constexpr char kGenerate[] = "/quire.v1.InferenceService/Generate";
constexpr char kGetStatus[] = "/quire.v1.AdminService/GetStatus";
constexpr char kSteps[] = "/quire.v1.WorkerService/Steps";
constexpr char kCheck[] = "/grpc.health.v1.Health/Check";

// The token "abc" belongs to the tenant acme, and "ab" belongs to operators.
std::shared_ptr<TokenFile> Tokens() {
  const TemporaryDirectory directory;
  ReplaceFile(directory / "tokens",
              "acme ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"
              "ops fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603 admin\n");
  return *TokenFile::Open(directory / "tokens");
}

Code Call(const AccessRules& rules, const char* path, const std::vector<std::string>& names,
          const std::string& authorization = "") {
  return Authorize(rules, path, names, authorization).code();
}

TEST(AuthorizerTest, ATokenOpensWhatItsMarkSays) {
  const AccessRules rules{.tokens = Tokens()};
  EXPECT_EQ(Call(rules, kGenerate, {}, "Bearer abc"), Code::kOk);
  EXPECT_EQ(Call(rules, kGenerate, {}, "bearer abc"), Code::kOk);
  EXPECT_EQ(Call(rules, kGenerate, {}, "Bearer ab"), Code::kOk);
  EXPECT_EQ(Call(rules, kGetStatus, {}, "Bearer ab"), Code::kOk);
  EXPECT_EQ(Call(rules, kGetStatus, {}, "Bearer abc"), Code::kPermissionDenied);
  for (const char* bad : {"", "abc", "Basic abc", "Bearer", "Bearer ", "Bearer  abc", "Bearer abc ", "Bearer ABC"}) {
    EXPECT_EQ(Call(rules, kGenerate, {}, bad), Code::kUnauthenticated) << bad;
    EXPECT_EQ(Call(rules, kGetStatus, {}, bad), Code::kUnauthenticated) << bad;
  }
}

TEST(AuthorizerTest, ACertificateOpensWhatItsNameSays) {
  const AccessRules manager{.has_certificates = true, .client_names = {"app", "spiffe://a/b"}, .admin_names = {"ops"}};
  EXPECT_EQ(Call(manager, kGenerate, {"app"}), Code::kOk);
  EXPECT_EQ(Call(manager, kGenerate, {"x", "spiffe://a/b"}), Code::kOk);
  EXPECT_EQ(Call(manager, kGenerate, {"ops"}), Code::kOk);
  EXPECT_EQ(Call(manager, kGetStatus, {"ops"}), Code::kOk);
  EXPECT_EQ(Call(manager, kGetStatus, {"app"}), Code::kPermissionDenied);
  EXPECT_EQ(Call(manager, kGenerate, {"quire-worker"}), Code::kPermissionDenied);
  EXPECT_EQ(Call(manager, kGenerate, {}), Code::kPermissionDenied);
  EXPECT_EQ(Call(manager, kSteps, {"app", "ops"}), Code::kPermissionDenied);
  const AccessRules worker{.has_certificates = true, .manager_names = {"manager"}};
  EXPECT_EQ(Call(worker, kSteps, {"manager"}), Code::kOk);
  EXPECT_EQ(Call(worker, kSteps, {"app"}), Code::kPermissionDenied);
  EXPECT_EQ(Call(worker, kGenerate, {"manager"}), Code::kPermissionDenied);
  EXPECT_EQ(Call({.has_certificates = true, .client_names = {"*"}}, kGenerate, {}), Code::kOk);
}

TEST(AuthorizerTest, BothMustOpenTheMethodWhenBothAreAskedFor) {
  const AccessRules rules{
      .has_certificates = true, .client_names = {"app"}, .admin_names = {"ops"}, .tokens = Tokens()};
  EXPECT_EQ(Call(rules, kGenerate, {"app"}, "Bearer abc"), Code::kOk);
  EXPECT_EQ(Call(rules, kGenerate, {"app"}), Code::kUnauthenticated);
  EXPECT_EQ(Call(rules, kGenerate, {"x"}, "Bearer abc"), Code::kPermissionDenied);
  EXPECT_EQ(Call(rules, kGetStatus, {"app"}, "Bearer ab"), Code::kPermissionDenied);
  EXPECT_EQ(Call(rules, kGetStatus, {"ops"}, "Bearer abc"), Code::kPermissionDenied);
  EXPECT_EQ(Call(rules, kGetStatus, {"ops"}, "Bearer ab"), Code::kOk);
}

TEST(AuthorizerTest, HealthIsOpenAndWhatHasNoEntryIsNot) {
  const AccessRules rules{.has_certificates = true, .client_names = {"*"}, .admin_names = {"*"}, .tokens = Tokens()};
  EXPECT_EQ(Call(rules, kCheck, {}), Code::kOk);
  EXPECT_EQ(Call(rules, "/quire.v1.InferenceService/New", {}, "Bearer ab"), Code::kPermissionDenied);
}

}  // namespace
}  // namespace quire
