#include "serving/grpc_server.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/listen_address.h"
#include "base/status.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "grpcpp/server_builder.h"

namespace quire {
namespace {

// A client's host that vanished without a word keeps its calls no longer than their sum; a client that is paused or
// starved answers before.
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 30'000;

// Of TLS and HTTP/2 together; a connection that says nothing goes.
constexpr int kHandshakeTimeoutMs = 10'000;

// A probe asks one question.
constexpr GrpcServerLimits kProbeLimits{
    .max_message_bytes = 4096, .max_streams_per_connection = 8, .min_ping_interval_ms = 5'000};

void SetLimits(const GrpcServerLimits& limits, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(limits.max_message_bytes);
  builder->SetMaxSendMessageSize(limits.max_message_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_streams_per_connection);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, limits.min_ping_interval_ms);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // Keep probing a call that is silent.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // A second server on the port must fail.
}

// Removes reflection, which gRPC gives to every server of a process that links the library.
class WithoutReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override { plugins->clear(); }
};

absl::Status CannotListen(const std::string& address) {
  const absl::Status status = CheckListening(address);
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", status.ok() ? "it was in use a moment ago" : status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& address,
                                                              std::shared_ptr<grpc::ServerCredentials> credentials,
                                                              const GrpcServerLimits& limits,
                                                              const std::vector<Service>& services) {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  std::vector<std::string> names;
  for (const Service& service : services) {
    builder.RegisterService(service.implementation);
    names.push_back(service.name);
  }
  return Listen(address, std::move(credentials), limits, std::move(names), &builder);
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Listen(const std::string& address,
                                                               std::shared_ptr<grpc::ServerCredentials> credentials,
                                                               const GrpcServerLimits& limits,
                                                               std::vector<std::string> names,
                                                               grpc::ServerBuilder* builder) {
  if (IsUnixSocketInUse(address)) return CannotListen(address);
  grpc::EnableDefaultHealthCheckService(true);
  SetLimits(limits, builder);
  int port = 0;
  builder->AddListeningPort(address, std::move(credentials), &port);
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server == nullptr || port == 0) return CannotListen(address);
  std::unique_ptr<GrpcServer> started(new GrpcServer(std::move(server), WithPort(address, port), std::move(names)));
  started->SetReady(false);
  return started;
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::string address, std::vector<std::string> names)
    : server_(std::move(server)), address_(std::move(address)), names_(std::move(names)) {
  server_->GetHealthCheckService()->SetServingStatus("liveness", true);
}

GrpcServer::~GrpcServer() {
  Shutdown(absl::ZeroDuration());
}

absl::Status GrpcServer::ServeHealthAt(const std::string& address) {
  grpc::ServerBuilder builder;
  builder.SetOption(std::make_unique<WithoutReflection>());
  refusals_ = std::make_unique<grpc::CallbackGenericService>();
  builder.RegisterCallbackGenericService(refusals_.get());
  QUIRE_ASSIGN_OR_RETURN(probes_, Listen(address, grpc::InsecureServerCredentials(), kProbeLimits, names_, &builder));
  return absl::OkStatus();
}

void GrpcServer::SetReady(bool is_ready) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", is_ready);
  health->SetServingStatus("readiness", is_ready);
  for (const std::string& name : names_) health->SetServingStatus(name, is_ready);
  if (probes_ != nullptr) probes_->SetReady(is_ready);
}

void GrpcServer::Shutdown(absl::Duration timeout) {
  server_->Shutdown(absl::ToChronoTime(absl::Now() + timeout));
  server_->Wait();
}

}  // namespace quire
