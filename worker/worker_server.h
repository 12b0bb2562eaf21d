#ifndef QUIRE_WORKER_WORKER_SERVER_H_
#define QUIRE_WORKER_WORKER_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/worker_service.h"

namespace quire {

// The listening gRPC server: WorkerService, grpc.health.v1 (names "", "liveness", "readiness" and
// "quire.v1.WorkerService") and reflection. Stops when destroyed.
class WorkerServer {
 public:
  // `address` is host:port (port 0 takes a free one) or unix:/path. UNAVAILABLE when it cannot be taken; an address
  // that another process listens on is never shared. `service` must outlive the server.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const std::string& address, WorkerService* service);
  ~WorkerServer();

  // Where clients reach it, with the port that was taken: "127.0.0.1:41234", "unix:/run/quire.sock".
  const std::string& address() const { return address_; }

  // Health says NOT_SERVING from now on.
  void SetNotServing();
  // Waits a moment for calls to end, then cancels them.
  void Shutdown();

 private:
  WorkerServer(std::unique_ptr<grpc::Server> server, std::string address);

  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_WORKER_SERVER_H_
