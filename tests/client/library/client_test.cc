// SPDX-License-Identifier: Apache-2.0

#include "client/library/client.h"

#include <string>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using Violations = std::vector<std::pair<std::string, std::string>>;

grpc::Status Refusal(const std::string& message, const Violations& violations) {
  google::rpc::BadRequest bad_request;
  for (const auto& [field, description] : violations) {
    auto* violation = bad_request.add_field_violations();
    violation->set_field(field);
    violation->set_description(description);
  }
  google::rpc::Status details;
  details.add_details()->PackFrom(bad_request);
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, message, details.SerializeAsString());
}

TEST(FromGrpcStatusTest, TheOnlyViolationIsSaidOnce) {
  const absl::Status status = FromGrpcStatus(Refusal("top_k: is 9", {{"top_k", "is 9"}}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "top_k: is 9");
}

TEST(FromGrpcStatusTest, FurtherViolationsFollowTheMessage) {
  const absl::Status status =
      FromGrpcStatus(Refusal("top_k: is 9 (and 1 more error)", {{"top_k", "is 9"}, {"stop[0]", "is empty"}}));
  EXPECT_EQ(status.message(), "top_k: is 9 (and 1 more error)\n  stop[0]: is empty");
}

TEST(FromGrpcStatusTest, AViolationThatTheMessageLacksIsListed) {
  EXPECT_EQ(FromGrpcStatus(Refusal("bad request", {{"top_k", "is 9"}})).message(), "bad request\n  top_k: is 9");
}

TEST(FromGrpcStatusTest, OnlyGrpcsOwnUnavailableIsAConnectionError) {
  EXPECT_TRUE(IsConnectionError(FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"))));
  google::rpc::Status details;
  details.set_message("no worker");
  const grpc::Status said_by_manager(grpc::StatusCode::UNAVAILABLE, "no worker", details.SerializeAsString());
  EXPECT_FALSE(IsConnectionError(FromGrpcStatus(said_by_manager)));
  EXPECT_FALSE(IsConnectionError(FromGrpcStatus(grpc::Status(grpc::StatusCode::INTERNAL, "Socket closed"))));
}

// Nobody listens at this address, so an error other than UNAVAILABLE comes from the client itself.
TEST(ClientTest, TextThatIsNotUtf8IsRefusedBeforeItIsSent) {
  Client client({.endpoint = "unix:/nonexistent/quire.sock"});
  v1::TokenizeRequest tokenize;
  tokenize.set_text("\xFF");
  EXPECT_EQ(client.Tokenize(tokenize).status().code(), absl::StatusCode::kInvalidArgument);
  v1::EmbedRequest embed;
  embed.add_inputs()->set_text("\xFF");
  EXPECT_EQ(client.Embed(embed).status().code(), absl::StatusCode::kInvalidArgument);
  v1::GenerateRequest generate;
  generate.set_text("\xFF");
  const auto stream = client.Generate(generate, absl::Seconds(10));
  v1::GenerateResponse response;
  EXPECT_FALSE(stream->Next(&response));
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
