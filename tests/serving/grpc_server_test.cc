#include "serving/grpc_server.h"

#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "quire/v1/admin.grpc.pb.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

using Health = ::grpc::health::v1::Health;
using HealthResponse = ::grpc::health::v1::HealthCheckResponse;

constexpr GrpcServerLimits kLimits{
    .max_message_bytes = 1 << 20, .max_streams_per_connection = 8, .min_ping_interval_ms = 1000};

class GrpcServerTest : public ::testing::Test {
 protected:
  void Start() {
    auto server = GrpcServer::Start("127.0.0.1:0", grpc::InsecureServerCredentials(), kLimits,
                                    {{v1::AdminService::service_full_name(), &admin_}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }

  HealthResponse::ServingStatus Check(const std::string& service) {
    grpc::ClientContext context;
    ::grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    HealthResponse response;
    const grpc::Status status = Health::NewStub(channel_)->Check(&context, request, &response);
    return status.ok() ? response.status() : HealthResponse::SERVICE_UNKNOWN;
  }

  // Returns the status of a call of reflection without a request.
  grpc::StatusCode Reflect() {
    grpc::ClientContext context;
    grpc::internal::RpcMethod method("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                     grpc::internal::RpcMethod::BIDI_STREAMING);
    auto stream = std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>>(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(channel_.get(), method,
                                                                                              &context));
    stream->WritesDone();
    return stream->Finish().error_code();
  }

  // Returns the error of a server that cannot listen at `address`.
  std::string Error(const std::string& address) {
    v1::AdminService::Service other;
    const absl::Status status = GrpcServer::Start(address, grpc::InsecureServerCredentials(), kLimits,
                                                  {{v1::AdminService::service_full_name(), &other}})
                                    .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    return std::string(status.message());
  }

  v1::AdminService::Service admin_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcServerTest, PortZeroBecomesTheOneThatWasTaken) {
  Start();
  EXPECT_THAT(server_->address(), HasSubstr("127.0.0.1:"));
  EXPECT_NE(server_->address(), "127.0.0.1:0");
}

TEST_F(GrpcServerTest, HealthFollowsReadinessExceptForLiveness) {
  Start();
  for (const bool is_ready : {false, true, false}) {
    server_->SetReady(is_ready);
    const auto expected = is_ready ? HealthResponse::SERVING : HealthResponse::NOT_SERVING;
    EXPECT_EQ(Check(""), expected);
    EXPECT_EQ(Check("readiness"), expected);
    EXPECT_EQ(Check("quire.v1.AdminService"), expected);
    EXPECT_EQ(Check("liveness"), HealthResponse::SERVING);
  }
  EXPECT_EQ(Check("quire.v1.Unknown"), HealthResponse::SERVICE_UNKNOWN);
}

TEST_F(GrpcServerTest, ProbesAskElsewhereAndFindHealthAlone) {
  Start();
  EXPECT_EQ(server_->health_address(), "");
  EXPECT_EQ(server_->ServeHealthAt(server_->address()).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(server_->ServeHealthAt("127.0.0.1:0").ok());
  ASSERT_NE(server_->health_address(), server_->address());
  channel_ = grpc::CreateChannel(server_->health_address(), grpc::InsecureChannelCredentials());
  for (const bool is_ready : {false, true, false}) {
    server_->SetReady(is_ready);
    const auto expected = is_ready ? HealthResponse::SERVING : HealthResponse::NOT_SERVING;
    EXPECT_EQ(Check("readiness"), expected);
    EXPECT_EQ(Check("quire.v1.AdminService"), expected);
    EXPECT_EQ(Check("liveness"), HealthResponse::SERVING);
  }
  grpc::ClientContext context;
  v1::GetStatusResponse response;
  const grpc::Status status =
      v1::AdminService::NewStub(channel_)->GetStatus(&context, v1::GetStatusRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Reflect(), grpc::StatusCode::UNIMPLEMENTED);
  channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(Reflect(), grpc::StatusCode::OK);
}

TEST_F(GrpcServerTest, AnAddressInUseAndABadAddressAreToldApart) {
  Start();
  EXPECT_EQ(Error(server_->address()), absl::StrCat("cannot listen on ", server_->address(), ": it is in use"));
  // 192.0.2.0/24 is reserved for documentation, so no machine has such an address.
  EXPECT_EQ(Error("192.0.2.1:50051"), "cannot listen on 192.0.2.1:50051: 192.0.2.1 is not an address of this machine");
}

TEST_F(GrpcServerTest, AUnixSocketInUseIsNotReplaced) {
  const std::string address = absl::StrCat("unix:", testing::TempDir(), "/quire_grpc_server_test.", getpid());
  const auto first = GrpcServer::Start(address, grpc::InsecureServerCredentials(), kLimits,
                                       {{v1::AdminService::service_full_name(), &admin_}});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->address(), address);
  EXPECT_EQ(Error(address), absl::StrCat("cannot listen on ", address, ": it is in use"));
  EXPECT_EQ(Error("unix:/nonexistent/socket"), "cannot listen on unix:/nonexistent/socket: No such file or directory");
}

}  // namespace
}  // namespace quire
