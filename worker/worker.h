// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_WORKER_H_
#define QUIRE_WORKER_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/backend.h"
#include "kernels/cuda/open_device.h"
#include "kernels/simulated/backend.h"
#include "serving/grpc_server.h"
#include "serving/metrics_server.h"
#include "worker/block_storage.h"
#include "worker/executor.h"
#include "worker/model/load_progress.h"
#include "worker/model/model.h"
#include "worker/options.h"
#include "worker/rank_group.h"
#include "worker/session_loop.h"
#include "worker/worker_service.h"
#include "worker/worker_stats.h"

namespace quire {

using cuda::DeviceOpener;

// A worker in this process. It consists of model, pool, executor, service and metrics, as the options say.
class Worker {
 public:
  // Listens, loads the model and allocates the pool. Calls are refused until all of that is done, but health checks and
  // metrics are answered. Returns UNAVAILABLE when an address cannot be taken, before it reads the model.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options);
  // Does the same, and opens a GPU with `open_device`. Tests call it.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options, DeviceOpener open_device);
  ~Worker();

  // Tells the manager to place no more requests here, waits until the manager has ended its session, and stops
  // listening. If the drain timeout passes first, it finishes the running step and ends the session with UNAVAILABLE.
  // Call it once.
  void Stop();

  // Describes what has started, with one fact per line.
  std::string Summary() const;

 private:
  Worker() = default;

  absl::Status Listen(const WorkerOptions& options);
  absl::Status Load(WorkerOptions options, DeviceOpener open_device);
  // Makes backend and model of a worker that computes nothing.
  absl::Status LoadSimulated(const WorkerOptions& options, const ModelConfig& config);
  absl::StatusOr<WorkerLimits> PlanLimits(const WorkerOptions& options, const KvLayout& layout);
  // Makes the group of a rank, unless it could never move bytes.
  absl::Status MakeRankGroup(const WorkerOptions& options);
  absl::Status TakeMemory(const WorkerOptions& options);
  absl::Status ServeMetrics(const WorkerOptions& options);
  void AddModelMetrics();
  void Serve();
  // Sets the answer of health checks. After Stop has begun it stays "not serving".
  void SetReady(bool is_ready) QUIRE_EXCLUDES(ready_mutex_);
  void StopServing();
  // Describes the weights as they are in memory. REQUIRES: the device is not simulated.
  std::string WeightSummary() const;

  absl::Duration drain_timeout_;
  absl::Duration orphan_hold_;
  // Each of these uses the ones before it. They are destroyed in the opposite order.
  std::string model_name_;
  bool binds_threads_ = false;
  std::unique_ptr<Backend> backend_;
  simulated::SimulatedBackend* simulated_ = nullptr;  // backend_ if the device is simulated; otherwise null.
  std::unique_ptr<Model> model_;
  std::unique_ptr<BlockStorage> storage_;
  std::unique_ptr<Executor> executor_;
  WorkerStats stats_;
  std::unique_ptr<RankGroup> ranks_;  // Null unless this is a rank of a group.
  std::unique_ptr<SessionLoop> loop_;
  LoadProgress loading_;
  WorkerService service_{&loading_};
  std::unique_ptr<GrpcServer> server_;
  Mutex ready_mutex_;
  bool is_stopping_ QUIRE_GUARDED_BY(ready_mutex_) = false;
  std::unique_ptr<MetricsServer> metrics_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_WORKER_H_
