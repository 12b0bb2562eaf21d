#include "kv_manager/manager_server.h"

#include <memory>
#include <string>

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

class ManagerServerTest : public ::testing::Test {
 protected:
  void Start() {
    auto server = ManagerServer::Start("127.0.0.1:0", {{v1::AdminService::service_full_name(), &admin_}});
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

  v1::AdminService::Service admin_;
  std::unique_ptr<ManagerServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ManagerServerTest, PortZeroBecomesTheOneThatWasTaken) {
  Start();
  EXPECT_THAT(server_->address(), HasSubstr("127.0.0.1:"));
  EXPECT_NE(server_->address(), "127.0.0.1:0");
}

TEST_F(ManagerServerTest, HealthFollowsReadinessExceptForLiveness) {
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

TEST_F(ManagerServerTest, AnAddressInUseIsNamed) {
  Start();
  v1::AdminService::Service other;
  const auto second = ManagerServer::Start(server_->address(), {{v1::AdminService::service_full_name(), &other}});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address()));
}

}  // namespace
}  // namespace quire
