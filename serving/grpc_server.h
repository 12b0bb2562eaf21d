// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_GRPC_SERVER_H_
#define QUIRE_SERVING_GRPC_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/service_flags.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "serving/acceptor.h"
#include "serving/guarded_port.h"

namespace quire {

// It is large because gRPC chooses which calls fail beyond it, and does not choose those that use most.
inline constexpr int64_t kDefaultMaxReceivingBytes = int64_t{1} << 30;

inline constexpr int64_t kDefaultMaxHeldBytes = int64_t{512} << 20;

// Limits of a port and of its clients.
struct GrpcServerLimits {
  int max_message_bytes;
  int max_streams_per_connection;
  int min_ping_interval_ms;  // A client that probes a silent connection more often is disconnected.
  // Memory for everything that all clients are sending, such as the received parts of unfinished messages. Beyond it,
  // calls fail.
  int64_t max_receiving_bytes = kDefaultMaxReceivingBytes;
  // Further connections are closed at once. One IP address may have seven eighths of them.
  int max_connections = kDefaultMaxConnections;
  // Memory for the open calls of all connections, by an estimate, with the received parts of their unfinished messages.
  // Beyond it, the connection that holds most is closed. One connection may hold half of it.
  int64_t max_held_bytes = kDefaultMaxHeldBytes;
};

// A listening gRPC server with services, health checks (grpc.health.v1) and reflection. Thread-safe.
class GrpcServer {
 public:
  struct Service {
    std::string name;  // The full name, by which health checks ask for the service.
    grpc::Service* implementation;
  };

  // Starts to listen. `address` is host:port or unix:path; port 0 takes a free one. The services must outlive the
  // server. Returns UNAVAILABLE with the reason when the address cannot be taken. An address is never shared with
  // another process.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& address,
                                                           std::shared_ptr<grpc::ServerCredentials> credentials,
                                                           const GrpcServerLimits& limits,
                                                           const std::vector<Service>& services);
  ~GrpcServer();

  // Serves health checks at another address as well, and nothing else there. That address has no TLS and no
  // authentication, whatever the credentials of the server. Returns the errors of Start. Call it at most once, and
  // before several threads use the server.
  absl::Status ServeHealthAt(const std::string& address);

  // Sets the answer of health checks for "", "readiness" and every service. At first they are not serving. "liveness"
  // is always serving.
  void SetReady(bool is_ready);

  // Refuses new calls, waits for the running ones, and cancels those that still run at the timeout. Later calls do
  // nothing.
  void Shutdown(absl::Duration timeout);

  // Returns how many bytes the connection of a call has received in all, or nothing if that is not known. `peer` is the
  // peer of the call as gRPC writes it, such as "ipv4:127.0.0.1:40000".
  std::optional<int64_t> ReceivedBytes(const std::string& peer) const;

  // The call from `peer` makes this work for the server, beyond its frames. Its connection pays for it, see FrameGuard.
  // `peer` as above; a unix socket pays nothing. Returns whether a connection pays.
  bool Charge(const std::string& peer, int64_t work_us);

  // What happened at the port, and at the port of ServeHealthAt.
  std::vector<PortStats> Ports() const;

  // The address of ServeHealthAt, or empty without it.
  std::string health_address() const { return probes_ == nullptr ? "" : probes_->address(); }
  // The address for clients, with the port that was taken: "127.0.0.1:41234" or "unix:/run/quire.sock".
  const std::string& address() const { return acceptor_->address(); }

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::vector<std::string> names);

  // Starts a server with the services in `builder`, and with health checks that know `names`. `port` is the name of the
  // port in metrics.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Listen(const std::string& port, const std::string& address,
                                                            std::shared_ptr<grpc::ServerCredentials> credentials,
                                                            const GrpcServerLimits& limits,
                                                            std::vector<std::string> names,
                                                            grpc::ServerBuilder* builder);

  class Handover;

  const std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<GuardedPort> guard_;  // Limits what the connections send and hold.
  // gRPC's own way to accept stops for ever when the process runs out of file descriptors, and knows no limit.
  std::shared_ptr<Handover> handover_;
  std::unique_ptr<Acceptor> acceptor_;                      // Gives its connections to handover_.
  const std::vector<std::string> names_;                    // The names of the services.
  std::unique_ptr<grpc::CallbackGenericService> refusals_;  // Answers UNIMPLEMENTED to all other calls at probes_.
  std::unique_ptr<GrpcServer> probes_;                      // The server of ServeHealthAt, or null.
};

}  // namespace quire

#endif  // QUIRE_SERVING_GRPC_SERVER_H_
