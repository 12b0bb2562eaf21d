// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "security/token_file.h"
#include "tests/kv_manager/inference/batch_client.h"
#include "tests/kv_manager/inference/service_harness.h"
#include "tests/security/certificates.h"

// Tests what calls may do whose token is withdrawn, or given to another tenant, after they were authorized.

namespace quire {
namespace {

using ::testing::SizeIs;

// The SHA-256 digest of "abc", which is the example in FIPS 180-4.
constexpr char kAbc[] = " ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";

class WithdrawnTokenTest : public ::testing::Test {
 protected:
  WithdrawnTokenTest() {
    ReplaceFile(path_, std::string("acme") + kAbc);
    tokens_ = *TokenFile::Open(path_, std::chrono::hours(1));
    harness_ = std::make_unique<ServiceHarness>(ToyModel(), InferenceServiceOptions{.tokens = tokens_});
  }

  void SetTokens(const std::string& text) {
    ReplaceFile(path_, text);
    tokens_->file()->Check();
  }

  static v1::GenerateRequest RequestFor(const std::string& text) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.mutable_stopping()->set_max_tokens(3);
    request.mutable_stopping()->set_ignore_eos(true);
    return request;
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "tokens";
  std::shared_ptr<TokenFile> tokens_;
  std::unique_ptr<ServiceHarness> harness_;
};

TEST_F(WithdrawnTokenTest, AnOpenBatchBeginsNoMoreRequests) {
  BatchClient batch(harness_.get(), "Bearer abc");
  harness_->engine.Hold();
  ASSERT_TRUE(batch.Start(1, RequestFor("a")));
  harness_->engine.WaitForRequests(1);

  SetTokens("# nobody\n");
  ASSERT_TRUE(batch.Start(2, RequestFor("b")));
  const grpc::Status refused = batch.ReadUntilEnd(2).status();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(refused.error_message(), "the bearer token of the call is not known any more");
  v1::GenerateBatchRequest resume;
  resume.set_tag(3);
  resume.mutable_resume()->set_resume_token("any");
  ASSERT_TRUE(batch.stream->Write(resume));
  EXPECT_EQ(batch.ReadUntilEnd(3).status().error_code(), grpc::StatusCode::UNAUTHENTICATED);

  // The request that runs continues to its end, and the token may come back.
  harness_->engine.Step(5);
  EXPECT_TRUE(batch.ReadUntilEnd(1).status().ok());
  EXPECT_THAT(batch.results[1].tokens(), SizeIs(3));
  SetTokens(std::string("acme") + kAbc);
  ASSERT_TRUE(batch.Start(4, RequestFor("c")));
  harness_->engine.WaitForRequests(2);
  harness_->engine.Step(5);
  EXPECT_TRUE(batch.Finish().ok());
  EXPECT_TRUE(batch.results[4].status().ok());
  EXPECT_THAT(harness_->engine.requests(), SizeIs(2));
}

TEST_F(WithdrawnTokenTest, RequestsOfAnOpenBatchBelongToTheTenantThatTheTokenHasNow) {
  BatchClient batch(harness_.get(), "Bearer abc");
  ASSERT_TRUE(batch.Start(1, RequestFor("a")));
  EXPECT_TRUE(batch.ReadUntilEnd(1).status().ok());
  SetTokens(std::string("globex") + kAbc);
  ASSERT_TRUE(batch.Start(2, RequestFor("a")));
  EXPECT_TRUE(batch.Finish().ok());
  EXPECT_TRUE(batch.results[2].status().ok());
  const std::vector<Request> requests = harness_->engine.requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(requests[0].tenant, "acme");
  EXPECT_EQ(requests[1].tenant, "globex");
  EXPECT_NE(requests[0].cache_salt, requests[1].cache_salt) << "the tenants must not share cached prefixes";
}

// The message of a call may come long after its token was checked.
TEST_F(WithdrawnTokenTest, ACallWhoseTokenWasWithdrawnBeforeItsMessageCameIsRefused) {
  SetTokens("# nobody\n");
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer abc");
  const auto reader = harness_->stub->Generate(&context, RequestFor("a"));
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(harness_->engine.requests(), SizeIs(0));

  grpc::ClientContext unary;
  unary.AddMetadata("authorization", "Bearer abc");
  v1::GetModelResponse model;
  EXPECT_EQ(harness_->stub->GetModel(&unary, {}, &model).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

}  // namespace
}  // namespace quire
