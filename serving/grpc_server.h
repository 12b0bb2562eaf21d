#ifndef QUIRE_SERVING_GRPC_SERVER_H_
#define QUIRE_SERVING_GRPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace quire {

// What one client may take.
struct GrpcServerLimits {
  int max_message_bytes;
  int max_streams_per_connection;
  int min_ping_interval_ms;  // A client that probes a silent connection more often is cut off.
};

// A listening gRPC server: services with health (grpc.health.v1) and reflection. Thread-safe.
class GrpcServer {
 public:
  struct Service {
    std::string name;  // Full name, as health checks ask for it.
    grpc::Service* implementation;
  };

  // `address` is host:port (port 0 takes a free one) or unix:path; the services are borrowed. UNAVAILABLE, with the
  // reason, when the address cannot be taken; one that another process listens on is never shared.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& address,
                                                           std::shared_ptr<grpc::ServerCredentials> credentials,
                                                           const GrpcServerLimits& limits,
                                                           const std::vector<Service>& services);
  ~GrpcServer();

  // Serves health, and nothing else, at another address as well, to all who reach it: in plain text, whatever the
  // credentials of the server. Errors as from Start. Once, before calls from several threads.
  absl::Status ServeHealthAt(const std::string& address);

  // What health answers for "", "readiness" and every service; "liveness" is always serving. Not ready at first.
  void SetReady(bool is_ready);

  // Refuses new calls, waits for those that run, and cancels what is left at the timeout. Later calls do nothing.
  void Shutdown(absl::Duration timeout);

  // Of ServeHealthAt; empty without it.
  std::string health_address() const { return probes_ == nullptr ? "" : probes_->address(); }
  // Where clients reach it, with the port that was taken: "127.0.0.1:41234", "unix:/run/quire.sock".
  const std::string& address() const { return address_; }

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::string address, std::vector<std::string> names);

  // With what `builder` has beside health, which knows `names`.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Listen(const std::string& address,
                                                            std::shared_ptr<grpc::ServerCredentials> credentials,
                                                            const GrpcServerLimits& limits,
                                                            std::vector<std::string> names,
                                                            grpc::ServerBuilder* builder);

  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
  const std::vector<std::string> names_;                    // Of services.
  std::unique_ptr<grpc::CallbackGenericService> refusals_;  // What probes_ says to all but health: UNIMPLEMENTED.
  std::unique_ptr<GrpcServer> probes_;                      // Health alone, for those who have no credentials.
};

}  // namespace quire

#endif  // QUIRE_SERVING_GRPC_SERVER_H_
