// Tenants see nothing of each other.

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/installation.h"

namespace quire {
namespace {

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
    v1::GenerateRequest request = GreedyRequest("One day", 900);
    request.mutable_stopping()->set_ignore_eos(true);
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
  // An operator's own requests and pins are those of its tenant.
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

}  // namespace
}  // namespace quire
