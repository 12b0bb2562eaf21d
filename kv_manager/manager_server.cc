#include "kv_manager/manager_server.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/unix_socket.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"

namespace quire {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;  // A prompt of a million tokens is 5 MiB.
constexpr int kMaxStreamsPerConnection = 1024;
// Clients may probe a silent connection, which a long prefill is, this often.
constexpr int kMinClientPingIntervalMs = 5'000;
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;

void SetLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinClientPingIntervalMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // A second manager on the port must fail.
}

// gRPC reports the port that it took for host:0.
std::string WithPort(const std::string& address, int port) {
  if (absl::StartsWith(address, "unix:")) return address;
  return absl::StrCat(absl::string_view(address).substr(0, address.rfind(':')), ":", port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ManagerServer>> ManagerServer::Start(const std::string& address,
                                                                    std::vector<Service> services) {
  if (IsUnixSocketInUse(address)) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": another process does"));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetLimits(&builder);
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  for (const Service& service : services) builder.RegisterService(service.implementation);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": is it in use, or not an address?"));
  }
  std::unique_ptr<ManagerServer> manager(
      new ManagerServer(std::move(server), WithPort(address, port), std::move(services)));
  manager->SetReady(false);
  return manager;
}

ManagerServer::ManagerServer(std::unique_ptr<grpc::Server> server, std::string address, std::vector<Service> services)
    : server_(std::move(server)), address_(std::move(address)), services_(std::move(services)) {
  server_->GetHealthCheckService()->SetServingStatus("liveness", true);
}

void ManagerServer::SetReady(bool is_ready) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", is_ready);
  health->SetServingStatus("readiness", is_ready);
  for (const Service& service : services_) health->SetServingStatus(service.name, is_ready);
}

void ManagerServer::Shutdown(absl::Duration timeout) {
  server_->Shutdown(absl::ToChronoTime(absl::Now() + timeout));
  server_->Wait();
}

}  // namespace quire
