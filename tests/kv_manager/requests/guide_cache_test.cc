// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/guide_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

v1::Guide Regex(const std::string& text) {
  v1::Guide guide;
  guide.set_regex(text);
  return guide;
}

class GuideCacheTest : public ::testing::Test {
 protected:
  ManualClock clock_;
  RpcCounts counts_;
  GuideCache cache_{&clock_, &counts_};
};

TEST_F(GuideCacheTest, KnowsGuidesOfTheSameSaltOnly) {
  const GuideUser acme{.tenant = "acme", .salt = "4:acme"};
  EXPECT_FALSE(cache_.Knows(acme, Regex("a+")));
  EXPECT_TRUE(cache_.Check(acme, Regex("a+")).ok());
  EXPECT_TRUE(cache_.Knows(acme, Regex("a+")));
  EXPECT_FALSE(cache_.Knows(acme, Regex("b+")));
  EXPECT_FALSE(cache_.Knows({.tenant = "acme", .salt = "4:acmex"}, Regex("a+")));
  EXPECT_FALSE(cache_.Knows({.tenant = "initech", .salt = "7:initech"}, Regex("a+")));
}

TEST_F(GuideCacheTest, ARefusedGuideIsRememberedWithItsError) {
  const GuideUser user{.tenant = "acme"};
  EXPECT_THAT(std::string(cache_.Check(user, Regex("a(")).message()), HasSubstr("has no"));
  EXPECT_TRUE(cache_.Knows(user, Regex("a(")));
  const absl::Status again = cache_.Check(user, Regex("a("));
  EXPECT_TRUE(absl::IsInvalidArgument(again)) << again;
}

TEST_F(GuideCacheTest, NewGuidesCostTheTimeOfTheirTenant) {
  GuideCache cache(&clock_, &counts_, /*max_saved_us=*/1);  // One compilation empties an account.
  const GuideUser acme{.tenant = "acme"};
  EXPECT_TRUE(absl::IsInvalidArgument(cache.Check(acme, Regex("a("))));
  const absl::Status refused = cache.Check(acme, Regex("b("));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("tenant \"acme\""));
  EXPECT_EQ(counts_.count(RpcRefusal::kTooManyNewGuides), 1);
  EXPECT_FALSE(cache.Knows(acme, Regex("b(")));
  EXPECT_TRUE(absl::IsInvalidArgument(cache.Check(acme, Regex("a(")))) << "it needs no compilation";
  EXPECT_TRUE(cache.Check({.tenant = "initech"}, Regex("b")).ok()) << "others have accounts of their own";
  clock_.Advance(60'000'000);
  EXPECT_TRUE(absl::IsInvalidArgument(cache.Check(acme, Regex("b("))));
}

TEST_F(GuideCacheTest, GuidesOfRestoredRequestsCostNothing) {
  GuideCache cache(&clock_, &counts_, /*max_saved_us=*/1);
  const GuideUser restored{.tenant = "acme", .pays = false};
  EXPECT_TRUE(cache.Check(restored, Regex("a")).ok());
  EXPECT_TRUE(cache.Check({.tenant = "acme"}, Regex("b")).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(cache.Check({.tenant = "acme"}, Regex("c"))));
  EXPECT_TRUE(cache.Check(restored, Regex("c")).ok());
}

// Workers keep the guides that were used last.
TEST_F(GuideCacheTest, AGuideThatWorkersHaveDroppedCostsAsMuchAgain) {
  GuideCache cache(&clock_, &counts_, /*max_saved_us=*/1);
  const GuideUser acme{.tenant = "acme"};
  const GuideUser restored{.tenant = "acme", .pays = false};
  EXPECT_TRUE(cache.Check(acme, Regex("a")).ok());
  EXPECT_TRUE(cache.Check(acme, Regex("a")).ok()) << "the account is empty, and the workers have the guide";
  for (uint64_t i = 0; i < GuideCache::kKeptByWorkers; ++i) {
    EXPECT_TRUE(cache.Check(restored, Regex(absl::StrCat(i))).ok());
  }
  EXPECT_TRUE(cache.Check(acme, Regex("a")).ok()) << "it is the last that they have";
  for (uint64_t i = 0; i <= GuideCache::kKeptByWorkers; ++i) {
    EXPECT_TRUE(cache.Check(restored, Regex(absl::StrCat(i))).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(cache.Check(acme, Regex("a"))));
  clock_.Advance(60'000'000);
  EXPECT_TRUE(cache.Check(acme, Regex("a")).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(cache.Check(acme, Regex("b")))) << "it has emptied the account again";
}

TEST_F(GuideCacheTest, ThreadsThatAskForTheSameGuidePayForOneCompilation) {
  GuideCache cache(&clock_, &counts_, /*max_saved_us=*/1);
  const GuideUser acme{.tenant = "acme"};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(cache.Check(acme, Regex("(a|b)*a(a|b){12}")).ok()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts_.count(RpcRefusal::kTooManyNewGuides), 0);
}

TEST_F(GuideCacheTest, AnAccountIsFullAfterYearsWithoutAGuide) {
  GuideCache cache(&clock_, &counts_, /*max_saved_us=*/1);
  EXPECT_TRUE(cache.Check({.tenant = "acme"}, Regex("a")).ok());
  clock_.Advance(int64_t{600} * 86'400 * 1'000'000);
  EXPECT_TRUE(cache.Check({.tenant = "acme"}, Regex("b")).ok());
}

TEST_F(GuideCacheTest, TheMemoryOfKnownGuidesIsLimited) {
  const std::string first = "first";
  EXPECT_TRUE(cache_.Check({}, Regex(first)).ok());
  const int num_guides = static_cast<int>(GuideCache::kMaxBytes / 200) + 10;
  for (int i = 0; i < num_guides; ++i) {
    ASSERT_TRUE(cache_.Check({}, Regex(absl::StrCat(i))).ok());
    clock_.Advance(1'000'000);
  }
  EXPECT_FALSE(cache_.Knows({}, Regex(first)));
  EXPECT_TRUE(cache_.Knows({}, Regex(absl::StrCat(num_guides - 1))));
}

}  // namespace
}  // namespace quire
