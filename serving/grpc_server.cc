// SPDX-License-Identifier: Apache-2.0

#include "serving/grpc_server.h"

#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/server_interceptor.h"
#include "serving/frame_guard.h"
#include "serving/guarded_sockets.h"

namespace quire {
namespace {

struct TcpPeer {
  std::string ip;
  int port;
};

// Reads the peer of a call as gRPC writes it.
std::optional<TcpPeer> ReadPeer(absl::string_view rest) {
  if (!absl::ConsumePrefix(&rest, "ipv4:") && !absl::ConsumePrefix(&rest, "ipv6:")) return std::nullopt;
  const size_t colon = rest.rfind(':');
  int port;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(colon + 1), &port)) return std::nullopt;
  // The brackets around an IPv6 address.
  const std::string ip = absl::StrReplaceAll(rest.substr(0, colon), {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
  return TcpPeer{ip, port};
}

// When the host of a client is gone without closing its connections, its calls end after the sum of both times. A
// client that is only slow answers within the second one.
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 30'000;

// The handshakes of TLS and HTTP/2 together may take this long. A connection that sends nothing is closed then.
constexpr int kHandshakeTimeoutMs = 10'000;

// A connection without calls for this time is closed, so that it does not count towards the limit for ever. Clients
// connect again when they need to. gRPC 1.51 closes an idle connection at once, and a call that comes within the same
// millisecond may fail with UNAVAILABLE; it can be repeated. Only GRPC_ARG_MAX_CONNECTION_AGE_MS closes gracefully, but
// it would make busy connections connect again as well. The time is no round number, so that clients which call every
// five minutes do not meet this moment repeatedly.
constexpr int kMaxIdleMs = 307'000;

// gRPC counts 32 bytes for each field beside its name and value. When the fields of one call have more than this, it
// closes the connection with the calls of all others, who may share it through a proxy. So the limit is above the
// largest block that FrameGuard lets through, if the client has compressed it without references to earlier fields:
// Huffman's code makes at most 8 bytes of 5.
constexpr int kMaxMetadataBytes = 64 << 10;
static_assert(kMaxMetadataBytes > FrameGuard::kMaxHeaderBytes * 8 / 5 + 32 * FrameGuard::kMaxHeaderFields);

// The name in metrics of the port for clients.
constexpr char kMainPort[] = "listen";

// So that one client of the port for probes leaves room for the others.
constexpr int kMaxProbesPerAddress = 16;

// Returns how many connections one IP address may have at the port for clients, so that it leaves room for the others.
// The clients of a unix socket have no addresses, and 0 means that only the limit of the port counts.
int MaxPerAddress(const std::string& address, int max_connections) {
  return absl::StartsWith(address, "unix:") ? 0 : max_connections - max_connections / 8;
}

// A probe asks one question.
constexpr GrpcServerLimits kProbeLimits{.max_message_bytes = 4096,
                                        .max_streams_per_connection = 8,
                                        .min_ping_interval_ms = 5'000,
                                        .max_receiving_bytes = int64_t{16} << 20,
                                        .max_connections = 64,
                                        .max_held_bytes = int64_t{16} << 20};

void SetLimits(const GrpcServerLimits& limits, grpc::ServerBuilder* builder) {
  grpc::ResourceQuota memory;
  memory.Resize(static_cast<size_t>(limits.max_receiving_bytes));
  builder->SetResourceQuota(memory);
  builder->SetMaxReceiveMessageSize(limits.max_message_bytes);
  builder->SetMaxSendMessageSize(limits.max_message_bytes);
  // The limit of a message counts its bytes before it is decompressed, and a thousandfold compression is possible.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_streams_per_connection);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, limits.min_ping_interval_ms);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // Keep probing a call that is silent.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
}

// Removes reflection, which gRPC gives to every server of a process that links the library.
class WithoutReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override { plugins->clear(); }
};

// Lives as long as the call in the server.
class CallCounter : public grpc::experimental::Interceptor {
 public:
  explicit CallCounter(std::shared_ptr<GuardedPort> port) : port_(std::move(port)) { port_->AddCalls(1); }
  ~CallCounter() override { port_->AddCalls(-1); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override { methods->Proceed(); }

 private:
  const std::shared_ptr<GuardedPort> port_;
};

class CallCounterFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounterFactory(std::shared_ptr<GuardedPort> port) : port_(std::move(port)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* /*info*/) override {
    return new CallCounter(port_);
  }

 private:
  const std::shared_ptr<GuardedPort> port_;
};

}  // namespace

// Gives connections to gRPC when it is their turn, until it is closed. Thread-safe.
class GrpcServer::Handover {
 public:
  Handover(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections,
           std::shared_ptr<GuardedPort> guard)
      : connections_(std::move(connections)), guard_(std::move(guard)) {}

  // Takes the socket over. `peer` is the address of the client, or empty for a unix socket.
  void Give(int fd, const std::string& peer) QUIRE_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    if (is_closed_) {
      close(fd);
      return;
    }
    GuardedSockets::Instance().Add(fd, guard_, peer);
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    connections_->HandleNewConnection(&connection);
  }

  // Connections that still wait for their turn are closed then. Later calls do nothing.
  void Close() QUIRE_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    is_closed_ = true;
  }

 private:
  Mutex mutex_;
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  const std::shared_ptr<GuardedPort> guard_;
  bool is_closed_ QUIRE_GUARDED_BY(mutex_) = false;
};

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
  return Listen(kMainPort, address, std::move(credentials), limits, std::move(names), &builder);
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Listen(const std::string& port, const std::string& address,
                                                               std::shared_ptr<grpc::ServerCredentials> credentials,
                                                               const GrpcServerLimits& limits,
                                                               std::vector<std::string> names,
                                                               grpc::ServerBuilder* builder) {
  using Connections = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  grpc::EnableDefaultHealthCheckService(true);
  SetLimits(limits, builder);
  const auto guard = std::make_shared<GuardedPort>(port, limits.max_held_bytes);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<CallCounterFactory>(guard));
  builder->experimental().SetInterceptorCreators(std::move(interceptors));
  auto connections =
      builder->experimental().AddExternalConnectionAcceptor(Connections::FROM_FD, std::move(credentials));
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server == nullptr) return absl::UnavailableError("gRPC cannot start a server");
  std::unique_ptr<GrpcServer> started(new GrpcServer(std::move(server), std::move(names)));
  started->handover_ = std::make_shared<Handover>(std::move(connections), guard);
  started->guard_ = guard;
  started->SetReady(false);  // The first client must not find names of which the server knows nothing.
  const bool is_main = port == kMainPort;
  // The credentials do not tell whether they use TLS. No other port of a process uses it.
  if (is_main) GuardedSockets::Instance().SetTlsPort(guard);
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Start(
      address,
      {.port = port,
       .flag = is_main ? "--max-connections" : "",
       .max_connections = limits.max_connections,
       .max_per_address = is_main ? MaxPerAddress(address, limits.max_connections) : kMaxProbesPerAddress,
       .must_wait = [guard] { return guard->MustWait(); }},
      [handover = started->handover_](int fd, const std::string& peer) {
        GuardedSockets::Instance().turns()->Push(peer, GuardedPort::kConnectionPriceUs,
                                                 [handover, fd, peer] { handover->Give(fd, peer); });
      });
  if (!acceptor.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", acceptor.status().message()));
  }
  started->acceptor_ = *std::move(acceptor);
  return started;
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::vector<std::string> names)
    : server_(std::move(server)), names_(std::move(names)) {
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
  QUIRE_ASSIGN_OR_RETURN(
      probes_, Listen("health_listen", address, grpc::InsecureServerCredentials(), kProbeLimits, names_, &builder));
  return absl::OkStatus();
}

void GrpcServer::SetReady(bool is_ready) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", is_ready);
  health->SetServingStatus("readiness", is_ready);
  for (const std::string& name : names_) health->SetServingStatus(name, is_ready);
  if (probes_ != nullptr) probes_->SetReady(is_ready);
}

std::optional<int64_t> GrpcServer::ReceivedBytes(const std::string& peer) const {
  const std::optional<TcpPeer> tcp = ReadPeer(peer);
  return tcp.has_value() ? acceptor_->ReceivedBytes(tcp->ip, tcp->port) : std::nullopt;
}

bool GrpcServer::Charge(const std::string& peer, int64_t work_us) {
  const std::optional<TcpPeer> tcp = ReadPeer(peer);
  if (!tcp.has_value()) return false;
  const std::optional<int> fd = acceptor_->FindConnection(tcp->ip, tcp->port);
  const auto connection = fd.has_value() ? GuardedSockets::Instance().Find(*fd) : nullptr;
  if (connection != nullptr) connection->AddWork(work_us);
  return connection != nullptr;
}

std::vector<PortStats> GrpcServer::Ports() const {
  std::vector<PortStats> ports = {acceptor_->stats()};
  ports.back().ended = guard_->num_ended();
  if (probes_ != nullptr) ports.push_back(probes_->Ports().front());
  return ports;
}

void GrpcServer::Shutdown(absl::Duration timeout) {
  if (acceptor_ != nullptr) acceptor_->Stop();
  handover_->Close();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + timeout));
  server_->Wait();
}

}  // namespace quire
