// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_reason.h"
#include "kv_manager/requests/request_validation.h"
#include "tests/kv_manager/requests/toy_model.h"

namespace quire {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A stream that does nothing: the registry only stores it.
std::shared_ptr<TokenStream> Stream(RequestId id) {
  static const auto* const model = new std::shared_ptr<const ServedModel>(ToyModel());
  v1::GenerateRequest request;
  request.set_text("p");
  const auto valid = ValidateGenerate(request, **model, RequestLimits(), /*drawn_seed=*/1);
  return std::make_shared<TokenStream>(TokenStream::Environment{.engine = nullptr,
                                                                .run_later = [](const std::function<void()>&) {},
                                                                .on_end = [](const StreamEnd&) {},
                                                                .max_outbox_tokens = 1},
                                       id, ResponseSet(*model, "name", *valid), StreamReader());
}

std::optional<Caller> Tenant(const std::string& tenant, bool is_admin = false) {
  return Caller{.tenant = tenant, .is_admin = is_admin};
}

TEST(RequestRegistryTest, ANameIsTakenUntilItIsFreed) {
  RequestRegistry registry(10);
  const auto first = registry.Register("", "a", Stream(RequestId{1}));
  ASSERT_TRUE(first.ok());
  const auto second = registry.Register("", "a", Stream(RequestId{2}));
  EXPECT_TRUE(absl::IsAlreadyExists(second.status()));
  EXPECT_EQ(ReasonOf(second.status())->word, "REQUEST_RUNNING");
  (*first)->FreeName();
  (*first)->FreeName();
  EXPECT_TRUE(registry.Register("", "a", Stream(RequestId{2})).ok());
}

TEST(RequestRegistryTest, DestroyingAnOldRegistrationLeavesTheNewOwnerOfTheName) {
  RequestRegistry registry(10);
  auto first = registry.Register("", "a", Stream(RequestId{1}));
  (*first)->FreeName();
  const auto second = registry.Register("", "a", Stream(RequestId{2}));
  first->reset();
  EXPECT_THAT(registry.Names(), UnorderedElementsAre(Pair(RequestId{2}, "a")));
}

TEST(RequestRegistryTest, AnotherStreamTakesANameAlthoughTheLimitIsReached) {
  RequestRegistry registry(2);
  auto first = registry.Register("", "a", Stream(RequestId{1}), "x");
  auto second = registry.Register("", "b", Stream(RequestId{2}), "x");
  ASSERT_TRUE(first.ok() && second.ok());
  (*first)->GiveTo(Stream(RequestId{3}), "y");
  EXPECT_THAT(registry.Names(), UnorderedElementsAre(Pair(RequestId{3}, "a"), Pair(RequestId{2}, "b")));
  EXPECT_FALSE(registry.Register("", "c", Stream(RequestId{4}), "y").ok()) << "y has the place of the first stream";
  second->reset();
  first->reset();
  EXPECT_TRUE(registry.Names().empty());
}

TEST(RequestRegistryTest, RequestsOfAllOwnersCountForTheLimit) {
  RequestRegistry registry(2);
  const auto first = registry.Register("x", "a", Stream(RequestId{1}));
  const auto second = registry.Register("y", "a", Stream(RequestId{2}));
  ASSERT_TRUE(first.ok() && second.ok());
  const absl::Status status = registry.Register("z", "a", Stream(RequestId{3})).status();
  EXPECT_EQ(status,
            WithRetryDelay(
                WithReason(absl::ResourceExhaustedError("2 requests are running, and the limit is 2 (--max-requests)"),
                           "TOO_MANY_REQUESTS", {{"max_requests", "2"}}),
                500));
}

TEST(RequestRegistryTest, OperatorsFindTheRequestsOfAnyOwner) {
  RequestRegistry registry(10);
  const auto first = registry.Register("x", "a", Stream(RequestId{1}));
  const auto second = registry.Register("y", "b", Stream(RequestId{2}));
  const auto third = registry.Register("x", "b", Stream(RequestId{3}));
  EXPECT_EQ((*registry.Find(Tenant("x"), "a"))->id(), RequestId{1});
  EXPECT_TRUE(absl::IsNotFound(registry.Find(Tenant("y"), "a").status()));
  EXPECT_EQ((*registry.Find(Tenant("ops", /*is_admin=*/true), "a"))->id(), RequestId{1});
  const absl::Status both = registry.Find(Tenant("ops", /*is_admin=*/true), "b").status();
  EXPECT_EQ(ReasonOf(both)->word, "AMBIGUOUS_REQUEST");
  EXPECT_EQ((*registry.Find(Tenant("y", /*is_admin=*/true), "b"))->id(), RequestId{2}) << "its own comes first";
}

TEST(RequestRegistryTest, ReadersAreAwaitedAfterTheNameIsFree) {
  RequestRegistry registry(10);
  EXPECT_TRUE(registry.WaitForReaders(absl::ZeroDuration()));
  auto first = registry.Register("", "a", Stream(RequestId{1}));
  (*first)->FreeName();
  EXPECT_FALSE(registry.WaitForReaders(absl::Milliseconds(1)));
  const auto refused = registry.Register("", "b", Stream(RequestId{2}));
  (*refused)->StopWaiting();
  EXPECT_FALSE(registry.WaitForReaders(absl::ZeroDuration()));
  std::thread reader([&] { first->reset(); });
  EXPECT_TRUE(registry.WaitForReaders(absl::Seconds(60)));
  reader.join();
}

TEST(RequestRegistryTest, OneNeedNotWaitForReadersThatCanResume) {
  RequestRegistry registry(10);
  auto single = registry.Register("", "a", Stream(RequestId{1}));
  const std::unique_ptr<RequestRegistry::Registration> resumable = registry.AwaitReader();
  EXPECT_FALSE(registry.WaitForReaders(absl::Milliseconds(1), /*awaits_resumable=*/false));
  std::thread reader([&] { single->reset(); });
  EXPECT_TRUE(registry.WaitForReaders(absl::Seconds(60), /*awaits_resumable=*/false));
  reader.join();
  EXPECT_FALSE(registry.WaitForReaders(absl::Milliseconds(1)));
}

TEST(RequestRegistryTest, ATenantThatTakesAllPlacesDoesNotKeepOthersOut) {
  RequestRegistry registry(8);
  std::vector<std::unique_ptr<RequestRegistry::Registration>> kept;
  const auto enters = [&](const std::string& tenant) {
    const RequestId id = registry.NextId();
    auto registration = registry.Register("", absl::StrCat(Value(id)), Stream(id), tenant);
    if (!registration.ok()) return false;
    kept.push_back(*std::move(registration));
    return true;
  };
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(enters("hog"));
  EXPECT_FALSE(enters("hog"));
  EXPECT_TRUE(enters("other"));
  EXPECT_FALSE(enters("another")) << "the reserve is one place";
  kept[7].reset();
  EXPECT_FALSE(enters("hog")) << "seven are more than its half of eight";
  EXPECT_TRUE(enters("another"));
}

// Requests come and leave on several threads while another one lists and looks for them.
TEST(RequestRegistryTest, ManyThreadsRegisterAndLookUp) {
  RequestRegistry registry(100);
  std::atomic<bool> is_done = false;
  std::thread onlooker([&] {
    while (!is_done) {
      for (const auto& [id, name] : registry.Names()) {
        const auto found = registry.Find(std::nullopt, name);
        if (!found.ok()) continue;  // It has just ended.
        EXPECT_EQ((*found)->id(), id);
      }
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const auto registration = registry.Register("", absl::StrCat(t, "/", i), Stream(registry.NextId()));
        ASSERT_TRUE(registration.ok()) << registration.status();
        if (i % 2 == 0) (*registration)->FreeName();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  is_done = true;
  onlooker.join();
  EXPECT_TRUE(registry.Names().empty());
  EXPECT_TRUE(registry.WaitForReaders(absl::ZeroDuration()));
}

}  // namespace
}  // namespace quire
