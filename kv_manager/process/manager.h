// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_PROCESS_MANAGER_H_
#define QUIRE_KV_MANAGER_PROCESS_MANAGER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/span_exporter.h"
#include "base/watched_file.h"
#include "kv_manager/admin/admin_service.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/inference/inference_service.h"
#include "kv_manager/leadership/leadership.h"
#include "kv_manager/process/options.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/requests/request_restorer.h"
#include "kv_manager/status_page/status_page.h"
#include "kv_manager/worker_link/worker_client.h"
#include "kv_manager/worker_link/worker_discovery.h"
#include "serving/grpc_server.h"
#include "serving/metrics_server.h"

namespace quire {

// The exit code of a manager that has led and has lost the lease.
inline constexpr int kExitLostLease = 3;

// A whole manager in this process: the engine, the services, the metrics and the search for workers, made from the
// options.
class Manager {
 public:
  // Listens and begins to connect to the workers. With --standby it waits until it leads. When it has led and leads no
  // longer, it ends the process with kExitLostLease. UNAVAILABLE when it cannot listen at an address.
  static absl::StatusOr<std::unique_ptr<Manager>> Start(const ManagerOptions& options);

  ~Manager();

  // Refuses new requests, waits until the running ones have ended and their clients have read the end, ends those that
  // are left at the drain timeout, and stops listening. With a resume key, those that can be resumed are left to the
  // next manager, whose clients hear that they should try again. With --standby it does not wait for these, and gives
  // the lease back as soon as no other ones are left. Call it once.
  void Stop();

  // The addresses at which it listens, one per line.
  std::string Summary() const;

 private:
  explicit Manager(const ManagerOptions& options);

  // Waits for the addresses for as long as a manager with the same flags may drain, and then listens.
  absl::Status ListenWhenFree();
  absl::Status Listen();
  absl::Status ServeMetrics();
  // Takes part in the election of a leader.
  void StandBy();
  // Connects to the workers. With --standby this is the moment at which a new leader takes over, on the thread of the
  // election: each worker ends the session of the leader before when this manager opens one with its greater term.
  void Lead(uint64_t term);
  // Returns whether a manager with these options can continue the requests of an earlier one.
  bool CanRestore() const;
  // UNAVAILABLE while this manager stands by.
  absl::Status CheckLeads() const;
  ElectionStatus ElectionNow() const;
  // With --standby, the client sends no plan when this manager does not lead.
  std::unique_ptr<WorkerClient> Fenced(std::unique_ptr<WorkerClient> client) const;

  // They are in the order of construction: each uses those before it.
  const ManagerOptions options_;
  std::unique_ptr<SpanExporter> spans_;  // Null without --otlp-endpoint.
  ManagerEngine engine_;
  std::unique_ptr<WatchedFile> tenants_;  // Null without --tenants.
  RequestEnvironment requests_;
  const RequestRestorer restorer_;  // The engine calls it.
  InferenceServiceImpl inference_;
  AdminServiceImpl admin_;
  std::unique_ptr<GrpcServer> server_;  // The engine tells it when workers are ready.
  // The same, for calls, which come before Start has returned it. Null before.
  std::atomic<GrpcServer*> charged_server_ = nullptr;
  StatusPage status_page_;
  std::unique_ptr<MetricsServer> metrics_;
  std::atomic<bool> leaves_requests_ = false;          // The next manager gets them.
  std::atomic<uint64_t> term_ = 0;                     // 0 without --standby, and before this manager leads.
  std::unique_ptr<Leadership> leadership_;             // Null without --standby.
  std::atomic<const Leadership*> election_ = nullptr;  // The same, for calls that come before it exists.
  std::unique_ptr<WorkerDiscovery> discovery_;         // Null while this manager stands by.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_MANAGER_H_
