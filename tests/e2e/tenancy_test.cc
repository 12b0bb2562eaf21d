// SPDX-License-Identifier: Apache-2.0

// Tenants see nothing of each other, and none takes the places of the others.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/installation.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr char kSharedStory[] =
    "Once upon a time there was a little girl named Lily. She loved to play in the big garden behind the old house, "
    "and every morning she took her red ball and ran to the tall tree.";

class TenancyTest : public ::testing::Test {
 protected:
  TenancyTest() {
    installation_.WriteTokens({"acme", "zeta"});
    cluster_ = std::make_unique<Cluster>(ClusterOptions{.model = BundledModel(),
                                                        .manager_flags = {"--tokens=" + installation_.tokens()},
                                                        .client = {.token = Installation::TokenOf("ops")}});
    acme_ = As("acme");
    zeta_ = As("zeta");
  }

  std::unique_ptr<Client> As(const std::string& tenant) {
    ClientOptions options = cluster_->client_options();
    options.token = Installation::TokenOf(tenant);
    return std::make_unique<Client>(options);
  }

  static uint32_t CachedTokens(Client& client, const v1::GenerateRequest& request) {
    const Generation generation = Generate(client, request);
    EXPECT_TRUE(generation.status.ok()) << generation.status;
    return generation.last.usage().cached_tokens();
  }

  // A request that runs until it is ended.
  static std::unique_ptr<GenerateStream> StartLong(Client& client, const std::string& name) {
    v1::GenerateRequest request = LongRequest("One day", 900);
    request.set_request_id(name);
    std::unique_ptr<GenerateStream> stream = client.Generate(request, absl::Seconds(60));
    v1::GenerateResponse response;
    EXPECT_TRUE(stream->Next(&response));
    return stream;
  }

  Installation installation_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Client> acme_;
  std::unique_ptr<Client> zeta_;
};

TEST_F(TenancyTest, ACachedPrefixServesItsTenantAlone) {
  v1::GenerateRequest request = GreedyRequest(kSharedStory, 4);
  EXPECT_EQ(CachedTokens(*acme_, request), 0u);
  EXPECT_GT(CachedTokens(*acme_, request), 0u) << "the cache is dead";
  EXPECT_EQ(CachedTokens(*zeta_, request), 0u);
  request.set_cache_salt("4:acme");
  EXPECT_EQ(CachedTokens(*zeta_, request), 0u);
  // An operator's own requests and pins belong to its tenant.
  request.clear_cache_salt();
  EXPECT_EQ(CachedTokens(cluster_->client(), request), 0u);
}

TEST_F(TenancyTest, APinHoldsWhatItsOwnTenantHasCached) {
  EXPECT_EQ(CachedTokens(*acme_, GreedyRequest(kSharedStory, 4)), 0u);
  v1::PinPrefixRequest pin;
  pin.set_text(kSharedStory);
  EXPECT_EQ(acme_->PinPrefix(pin).status().code(), Code::kPermissionDenied);
  const auto pinned = cluster_->client().PinPrefix(pin);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(pinned->workers(0).pinned_tokens(), 0u) << "an operator of another tenant holds acme's prefix";
  EXPECT_EQ(CachedTokens(cluster_->client(), GreedyRequest(kSharedStory, 4)), 0u);
  EXPECT_GT(cluster_->client().PinPrefix(pin)->workers(0).pinned_tokens(), 0u);
}

TEST_F(TenancyTest, TheBodyNamesNoOtherTenant) {
  v1::GenerateRequest request = GreedyRequest("One day", 2);
  request.set_tenant("acme");
  EXPECT_TRUE(Generate(*acme_, request).status.ok());
  const absl::Status status = Generate(*zeta_, request).status;
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_EQ(status.message(), "tenant: is \"acme\", the token is one of \"zeta\"");
  const std::unique_ptr<GenerateBatchStream> batch = zeta_->GenerateBatch();
  ASSERT_TRUE(batch->Start(1, request, absl::Seconds(20)).ok());
  v1::GenerateBatchResponse response;
  ASSERT_TRUE(batch->Next(&response));
  EXPECT_EQ(response.entries(0).end().code(), static_cast<int>(Code::kPermissionDenied));
}

TEST_F(TenancyTest, ARequestIsThereForItsTenantAndOperatorsAlone) {
  const std::unique_ptr<GenerateStream> stream = StartLong(*acme_, "job");
  EXPECT_TRUE(acme_->ExplainWait("job").ok());
  EXPECT_TRUE(cluster_->client().ExplainWait("job").ok());
  EXPECT_EQ(zeta_->ExplainWait("job").status().code(), Code::kNotFound);
  const absl::Status foreign = zeta_->Abort("job");
  const absl::Status unknown = zeta_->Abort("jab");
  EXPECT_EQ(foreign.code(), Code::kNotFound);
  EXPECT_EQ(foreign.message(), "request_id: no request \"job\" is running");
  EXPECT_EQ(unknown.code(), Code::kNotFound);
  // The name is free for another tenant, and ends that one's request alone.
  const std::unique_ptr<GenerateStream> other = StartLong(*zeta_, "job");
  const absl::Status either = cluster_->client().Abort("job");
  EXPECT_EQ(either.code(), Code::kFailedPrecondition);
  EXPECT_EQ(either.message(), "request_id: several tenants run a request \"job\"; use the token of the one meant");
  EXPECT_TRUE(zeta_->Abort("job").ok());
  EXPECT_TRUE(acme_->ExplainWait("job").ok());
  EXPECT_TRUE(acme_->Abort("job").ok());
}

TEST_F(TenancyTest, AMistakeInTheTokenFileIsLoggedWithoutACallAndAgainWhenItIsMended) {
  ReplaceFile(installation_.tokens(), "acme abc\n");
  EXPECT_NE(cluster_->manager().WaitForLine(installation_.tokens() + ": line 1 has a digest of 3 characters"), "");
  EXPECT_TRUE(Generate(*acme_, GreedyRequest("One day", 1)).status.ok()) << "the tokens stay as they were";
  installation_.WriteTokens({"zeta"});
  EXPECT_NE(cluster_->manager().WaitForLine(installation_.tokens() + " is right again"), "");
  EXPECT_EQ(Generate(*acme_, GreedyRequest("One day", 1)).status.code(), Code::kUnauthenticated);
}

// Two requests run at a time, and four wait.
class QuotaTest : public TenancyTest {
 protected:
  void Start(const std::vector<std::string>& more_flags) {
    ClusterOptions options{.model = BundledModel(),
                           .worker_flags = {"--max-sequences=2"},
                           .manager_flags = {"--tokens=" + installation_.tokens(), "--max-waiting-requests=4"},
                           .client = {.token = Installation::TokenOf("ops")}};
    options.manager_flags.insert(options.manager_flags.end(), more_flags.begin(), more_flags.end());
    cluster_.reset();
    cluster_ = std::make_unique<Cluster>(options);
    acme_ = As("acme");
    zeta_ = As("zeta");
  }

  std::unique_ptr<GenerateStream> Begin(Client& client, int num_tokens) {
    v1::GenerateRequest request = LongRequest("One day", num_tokens);
    return client.Generate(request, absl::Seconds(100));
  }

  static absl::Status EndOf(GenerateStream* stream) {
    v1::GenerateResponse response;
    while (stream->Next(&response)) continue;
    return stream->Finish();
  }

  // Waits until this number of requests waits.
  void WaitForWaiting(uint32_t num_requests) {
    uint32_t num_waiting = 0;
    for (const absl::Time end = absl::Now() + absl::Seconds(60); absl::Now() < end;) {
      const auto status = cluster_->client().GetStatus();
      if (status.ok()) num_waiting = status->workers(0).waiting_requests();
      if (num_waiting == num_requests) return;
      absl::SleepFor(absl::Milliseconds(5));
    }
    FAIL() << num_waiting << " requests wait";
  }

  // Starts requests of acme until two run and four wait. The worker then stands still.
  std::vector<std::unique_ptr<GenerateStream>> FillTheQueue() {
    std::vector<std::unique_ptr<GenerateStream>> streams;
    for (uint32_t i = 0; i < 6; ++i) {
      streams.push_back(Begin(*acme_, 900));
      WaitForWaiting(i < 2 ? 0 : i - 1);
      if (i >= 2) continue;
      v1::GenerateResponse response;
      EXPECT_TRUE(streams.back()->Next(&response));
      if (i == 1) cluster_->worker(0).Signal(SIGSTOP);
    }
    return streams;
  }
};

TEST_F(QuotaTest, AFullQueueRefusesTheTenantThatFillsIt) {
  Start({});
  std::vector<std::unique_ptr<GenerateStream>> hog = FillTheQueue();
  const absl::Status refused = EndOf(Begin(*acme_, 900).get());
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused;
  // The tenant has fewer requests than its half of the queue, so each of them gets a place.
  const std::unique_ptr<GenerateStream> first = Begin(*zeta_, 3);
  WaitForWaiting(4);
  const std::unique_ptr<GenerateStream> second = Begin(*zeta_, 3);
  // The two that came last have given up their places.
  for (const int i : {5, 4}) {
    const absl::Status displaced = EndOf(hog[i].get());
    EXPECT_EQ(displaced.code(), Code::kResourceExhausted) << displaced;
    EXPECT_THAT(
        displaced.message(),
        HasSubstr("the queue has reached its limit of 4 requests, and the request gave its place to a tenant that has "
                  "fewer waiting requests by weight than its tenant \"acme\" (--max-waiting-requests)"));
  }
  cluster_->worker(0).Signal(SIGCONT);
  hog[0]->Cancel();
  EXPECT_TRUE(EndOf(first.get()).ok());
  EXPECT_TRUE(EndOf(second.get()).ok());
  for (const auto& stream : hog) stream->Cancel();
}

TEST_F(QuotaTest, TheFileLimitsATenantAndIsReadAgain) {
  const std::string path = installation_.directory() / "tenants.yaml";
  ReplaceFile(path, "acme: {max_requests: 1}\n");
  Start({"--tenants=" + path});
  const std::unique_ptr<GenerateStream> running = StartLong(*acme_, "job");
  const absl::Status refused = Generate(*acme_, GreedyRequest("One day", 2)).status;
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(),
              HasSubstr("tenant \"acme\" has 1 waiting or running request, the limit is 1 (max_requests)"));
  EXPECT_TRUE(Generate(*zeta_, GreedyRequest("One day", 2)).status.ok());
  // From here on no request ends.
  cluster_->worker(0).Signal(SIGSTOP);
  ReplaceFile(path, "acme: {max_requests: 2}\n");
  EXPECT_NE(cluster_->manager().WaitForLine("read the limits of the tenants again"), "");
  const std::unique_ptr<GenerateStream> second = Begin(*acme_, 2);
  WaitForWaiting(1);
  const absl::Status third = Generate(*acme_, GreedyRequest("One day", 2)).status;
  EXPECT_THAT(third.message(), HasSubstr("the limit is 2 (max_requests)"));
  cluster_->worker(0).Signal(SIGCONT);
  EXPECT_EQ(EndOf(second.get()), absl::OkStatus());
}

}  // namespace
}  // namespace quire
