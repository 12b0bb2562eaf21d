#ifndef QUIRE_WORKER_WORKER_H_
#define QUIRE_WORKER_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/cuda/open_device.h"
#include "serving/grpc_server.h"
#include "serving/metrics_server.h"
#include "worker/block_storage.h"
#include "worker/executor.h"
#include "worker/model/model.h"
#include "worker/options.h"
#include "worker/session_loop.h"
#include "worker/worker_service.h"
#include "worker/worker_stats.h"

namespace quire {

// cuda::OpenDevice, or what stands for it.
using DeviceOpener = std::unique_ptr<cuda::Device> (*)(const cuda::DeviceOptions& options, std::string* why_not);

// A whole worker in this process: model, pool, executor, service and metrics, put together from the options.
class Worker {
 public:
  // Listens, loads the model and takes the memory; calls are refused until all of that is done. UNAVAILABLE, before the
  // model is touched, when an address cannot be taken.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options);
  // The same with another way to a GPU, for tests.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options, DeviceOpener open_device);
  ~Worker();

  // Tells the manager to place no more requests here and waits until it has ended its session; at the drain timeout
  // finishes the running step and ends the session with UNAVAILABLE. Then stops listening. Call it once.
  void Stop();

  // What started, one fact per line.
  std::string Summary() const;

 private:
  Worker() = default;

  absl::Status Listen(const WorkerOptions& options);
  absl::Status Load(const WorkerOptions& options, DeviceOpener open_device);
  absl::StatusOr<WorkerLimits> PlanLimits(const WorkerOptions& options, const KvLayout& layout);
  absl::Status TakeMemory(const WorkerOptions& options);
  absl::Status ServeMetrics(const WorkerOptions& options);
  void Serve();
  void StopServing();

  absl::Duration drain_timeout_;
  // Each stands on those before it; they are destroyed in the opposite order.
  std::string model_name_;
  bool binds_threads_ = false;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<BlockStorage> storage_;
  std::unique_ptr<Executor> executor_;
  WorkerStats stats_;
  std::unique_ptr<SessionLoop> loop_;
  WorkerService service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<MetricsServer> metrics_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_WORKER_H_
