#include "worker/worker_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/unix_socket.h"

namespace quire {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
// Of one connection. A manager needs two: its session and one Describe.
constexpr int kMaxStreams = 16;
// A manager that notices a dead worker within a second pings every half second; gRPC's default would call that abuse.
constexpr int kMinPingIntervalMs = 50;
// A manager's host that vanished without a word keeps its session no longer than their sum.
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
// Sessions have ended when the server stops; this is for their last bytes. An idle client may keep its connection open
// for all of it.
constexpr std::chrono::milliseconds kShutdownGrace(300);

// "127.0.0.1:0" and 41234 give "127.0.0.1:41234".
std::string WithPort(const std::string& address, int port) {
  if (absl::StartsWith(address, "unix:")) return address;
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(const std::string& address, WorkerService* service) {
  if (IsUnixSocketInUse(address)) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": another process does"));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": in use, or not an address of this machine"));
  }
  for (const char* name : {"", "liveness", "readiness", "quire.v1.WorkerService"}) {
    server->GetHealthCheckService()->SetServingStatus(name, true);
  }
  return std::unique_ptr<WorkerServer>(new WorkerServer(std::move(server), WithPort(address, port)));
}

WorkerServer::WorkerServer(std::unique_ptr<grpc::Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {}

WorkerServer::~WorkerServer() {
  Shutdown();
}

void WorkerServer::SetNotServing() {
  server_->GetHealthCheckService()->SetServingStatus(false);
}

void WorkerServer::Shutdown() {
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
}

}  // namespace quire
