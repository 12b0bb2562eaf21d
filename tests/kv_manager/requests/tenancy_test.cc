// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/tenancy.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

Request Of(const std::string& tenant, const std::string& salt) {
  Request request;
  request.tenant = tenant;
  request.cache_salt = salt;
  return request;
}

TEST(TenancyTest, WithoutTokensTheRequestsWordCounts) {
  Request request = Of("acme", "salt");
  EXPECT_TRUE(AssumeTenant(std::nullopt, &request).ok());
  EXPECT_EQ(request.tenant, "acme");
  EXPECT_EQ(request.cache_salt, "salt");
  EXPECT_EQ(OwnerOf(std::nullopt), "");
}

TEST(TenancyTest, ACallersTenantIsThatOfTheRequest) {
  for (const char* named : {"", "acme"}) {
    Request request = Of(named, "salt");
    EXPECT_TRUE(AssumeTenant(Caller{.tenant = "acme"}, &request).ok());
    EXPECT_EQ(request.tenant, "acme");
    EXPECT_EQ(request.cache_salt, TenantSalt("acme", "salt"));
  }
  Request foreign = Of("zeta", "salt");
  const absl::Status status = AssumeTenant(Caller{.tenant = "acme", .is_admin = true}, &foreign);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(), "tenant: is \"zeta\", the token is one of \"acme\"");
  EXPECT_EQ(foreign.cache_salt, "salt");
}

TEST(TenancyTest, NoTwoTenantsReachTheSameSalt) {
  const std::vector<std::string> words = {"", "a", "1", "a1", "1a", ":", "1:", "1:a", "a:", "10", "aaaaaaaaaa", "2:ab"};
  std::set<std::string> salts;
  for (const std::string& tenant : words) {
    for (const std::string& salt : words) salts.insert(TenantSalt(tenant, salt));
  }
  EXPECT_EQ(salts.size(), words.size() * words.size());
}

}  // namespace
}  // namespace quire
