// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/tenant_quotas.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status_reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using Ticket = std::unique_ptr<TenantQuotas::Ticket>;

TenantTable Table(const std::string& tenant, const TenantLimits& limits) {
  TenantTable table;
  table.by_tenant[tenant] = limits;
  return table;
}

TEST(TenantQuotasTest, ATenantHasAtMostItsRequestsAndOthersAreFree) {
  TenantQuotas quotas(Table("hog", {.max_requests = 2}));
  Ticket first = *quotas.Enter("hog");
  const Ticket second = *quotas.Enter("hog");
  second->OnStarted();
  const absl::Status refused = quotas.Enter("hog").status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(), "tenant \"hog\" has 2 waiting or running requests, the limit is 2 (max_requests)");
  EXPECT_EQ(ReasonOf(refused)->word, "TENANT_LIMIT");
  const std::map<std::string, std::string> numbers = {
      {"tenant", "hog"}, {"field", "max_requests"}, {"value", "2"}, {"limit", "2"}};
  EXPECT_EQ(ReasonOf(refused)->metadata, numbers);
  EXPECT_GT(RetryDelayOf(refused), 0);
  EXPECT_TRUE(quotas.Enter("other").ok());
  first.reset();
  EXPECT_TRUE(quotas.Enter("hog").ok());
}

TEST(TenantQuotasTest, ARequestCountsAsWaitingUntilItStarts) {
  TenantQuotas quotas(Table("hog", {.max_waiting_requests = 1}));
  const Ticket first = *quotas.Enter("hog");
  EXPECT_EQ(quotas.Enter("hog").status().message(),
            "tenant \"hog\" has 1 waiting request, the limit is 1 (max_waiting_requests)");
  first->OnStarted();
  first->OnStarted();
  const Ticket second = *quotas.Enter("hog");
  EXPECT_FALSE(quotas.Enter("hog").ok());
}

TEST(TenantQuotasTest, ATenantThatIsNotListedHasTheLimitsOfOthers) {
  TenantTable table = Table("acme", {});
  table.others.max_requests = 1;
  TenantQuotas quotas(table);
  const Ticket first = *quotas.Enter("acme");
  const Ticket second = *quotas.Enter("acme");
  const Ticket other = *quotas.Enter("other");
  EXPECT_FALSE(quotas.Enter("other").ok());
  EXPECT_TRUE(quotas.Enter("another").ok()) << "each has a limit of its own";
}

TEST(TenantQuotasTest, ANewTableHoldsForTheRequestsThatAreThere) {
  TenantQuotas quotas;
  const auto shares = quotas.shares();
  const Ticket first = *quotas.Enter("hog");
  const Ticket second = *quotas.Enter("hog");
  quotas.SetTable(Table("hog", {.share = {.weight = 2}, .max_requests = 2}));
  EXPECT_FALSE(quotas.Enter("hog").ok());
  EXPECT_NE(quotas.shares(), shares);
  EXPECT_EQ(quotas.shares()->Of("hog").weight, 2);
}

TEST(TenantQuotasTest, ManyThreadsNeverExceedALimit) {
  constexpr int kLimit = 5;
  TenantQuotas quotas(Table("hog", {.max_requests = kLimit}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        std::vector<Ticket> tickets;
        while (true) {
          absl::StatusOr<Ticket> ticket = quotas.Enter("hog");
          if (!ticket.ok()) break;
          (*ticket)->OnStarted();
          tickets.push_back(*std::move(ticket));
        }
        EXPECT_LE(tickets.size(), kLimit);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Ticket> tickets;
  for (int i = 0; i < kLimit; ++i) tickets.push_back(*quotas.Enter("hog"));
  EXPECT_FALSE(quotas.Enter("hog").ok());
}

}  // namespace
}  // namespace quire
