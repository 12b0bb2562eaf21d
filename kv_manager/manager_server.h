#ifndef QUIRE_KV_MANAGER_MANAGER_SERVER_H_
#define QUIRE_KV_MANAGER_MANAGER_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/server.h"

namespace quire {

// The gRPC port of the manager: its services with health, reflection and the limits for clients. Thread-safe.
class ManagerServer {
 public:
  struct Service {
    std::string name;  // Full name, as health checks ask for it.
    grpc::Service* implementation;
  };

  // `address` is host:port or unix:path; port 0 takes a free one. The services are borrowed. UNAVAILABLE when the
  // address cannot be taken.
  static absl::StatusOr<std::unique_ptr<ManagerServer>> Start(const std::string& address,
                                                              std::vector<Service> services);

  // What Health answers for "", "readiness" and every service; "liveness" is always serving. Not ready at first.
  void SetReady(bool is_ready);

  // Refuses new calls, waits for those that run, and cancels what is left at the timeout.
  void Shutdown(absl::Duration timeout);

  const std::string& address() const { return address_; }  // With the port that was taken.

 private:
  ManagerServer(std::unique_ptr<grpc::Server> server, std::string address, std::vector<Service> services);

  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
  const std::vector<Service> services_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_MANAGER_SERVER_H_
