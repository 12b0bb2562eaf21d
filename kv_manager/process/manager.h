#ifndef QUIRE_KV_MANAGER_PROCESS_MANAGER_H_
#define QUIRE_KV_MANAGER_PROCESS_MANAGER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/watched_file.h"
#include "kv_manager/admin/admin_service.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/inference/inference_service.h"
#include "kv_manager/process/options.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/requests/request_restorer.h"
#include "kv_manager/status_page/status_page.h"
#include "kv_manager/worker_link/worker_discovery.h"
#include "serving/grpc_server.h"
#include "serving/metrics_server.h"

namespace quire {

// A whole manager in this process: the engine, the services, the metrics and the search for workers, made from the
// options.
class Manager {
 public:
  // Listens and begins to connect to the workers. UNAVAILABLE when it cannot listen at an address.
  static absl::StatusOr<std::unique_ptr<Manager>> Start(const ManagerOptions& options);

  ~Manager();

  // Refuses new requests, waits until the running ones have ended and their clients have read the end, ends those that
  // are left at the drain timeout, and stops listening. Call it once.
  void Stop();

  // The addresses at which it listens, one per line.
  std::string Summary() const;

 private:
  explicit Manager(const ManagerOptions& options);

  absl::Status Listen();
  absl::Status ServeMetrics();

  // In the order of construction: each uses those before it.
  const ManagerOptions options_;
  ManagerEngine engine_;
  std::unique_ptr<WatchedFile> tenants_;  // Null without --tenants.
  RequestEnvironment requests_;
  const RequestRestorer restorer_;  // The engine calls it.
  InferenceServiceImpl inference_;
  AdminServiceImpl admin_;
  std::unique_ptr<GrpcServer> server_;  // The engine tells it when workers are ready.
  StatusPage status_page_;
  std::unique_ptr<MetricsServer> metrics_;
  std::unique_ptr<WorkerDiscovery> discovery_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_MANAGER_H_
