// quire-manager: the scheduler and the KV memory of its workers, served over gRPC.

#include <grpc/support/log.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/stop_signal.h"
#include "base/version.h"
#include "kv_manager/admin_service.h"
#include "kv_manager/grpc_worker_client.h"
#include "kv_manager/inference_service.h"
#include "kv_manager/manager_engine.h"
#include "kv_manager/manager_server.h"
#include "kv_manager/metrics.h"
#include "kv_manager/options.h"
#include "kv_manager/worker_discovery.h"
#include "prometheus/exposer.h"

namespace quire {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr absl::Duration kDiscoveryInterval = absl::Seconds(5);
// After the last request has ended, for its last message to leave.
constexpr absl::Duration kShutdownTimeout = absl::Milliseconds(500);

// gRPC reports in its own format what our statuses say in one line; it stays readable at level debug.
void LogFromGrpc(gpr_log_func_args* args) {
  QUIRE_LOG(kDebug) << "grpc: " << args->message;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "quire-manager: %s\n", std::string(status.message()).c_str());
  return code;
}

StepLoopOptions MakeStepLoopOptions(const ManagerOptions& options) {
  StepLoopOptions loop;
  loop.scheduler = options.scheduler;
  loop.max_inbox_requests = options.scheduler.max_waiting_requests;
  loop.worker_grace_us = absl::ToInt64Microseconds(options.worker_grace);
  loop.link.step_timeout_us = absl::ToInt64Microseconds(options.step_timeout);
  // Greater than what an earlier manager has used: it has opened fewer than a thousand sessions per second.
  loop.link.first_epoch = absl::ToUnixMillis(absl::Now());
  return loop;
}

absl::StatusOr<std::unique_ptr<prometheus::Exposer>> ServeMetrics(const std::string& address) {
  try {
    return std::make_unique<prometheus::Exposer>(address);
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", address, ": ", error.what()));
  }
}

// Passes the engine's readiness on once there is a server to tell.
class Readiness {
 public:
  void Set(bool is_ready) {
    const std::lock_guard lock(mutex_);
    is_ready_ = is_ready;
    if (server_ != nullptr) server_->SetReady(is_ready);
  }
  void Attach(ManagerServer* server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
    server_->SetReady(is_ready_);
  }

 private:
  std::mutex mutex_;
  bool is_ready_ = false;
  ManagerServer* server_ = nullptr;
};

int Serve(const ManagerOptions& options, std::future<void> stop) {
  Readiness readiness;
  ManagerEngine engine(MakeStepLoopOptions(options),
                       {.make_client =
                            [](const std::string& address) {
                              return std::make_unique<GrpcWorkerClient>(GrpcWorkerClientOptions{.address = address});
                            },
                        .on_readiness = [&readiness](bool is_ready) { readiness.Set(is_ready); }},
                       &SteadyClock());

  InferenceServiceImpl inference(&engine, {});
  AdminServiceImpl admin(&engine);
  absl::StatusOr<std::unique_ptr<ManagerServer>> server = ManagerServer::Start(
      options.listen,
      {{v1::InferenceService::service_full_name(), &inference}, {v1::AdminService::service_full_name(), &admin}});
  if (!server.ok()) return Fail(server.status(), kFailed);
  readiness.Attach(server->get());

  const auto metrics = std::make_shared<ManagerMetrics>(&engine);
  std::unique_ptr<prometheus::Exposer> exposer;
  if (!options.metrics_listen.empty()) {
    auto serving = ServeMetrics(options.metrics_listen);
    if (!serving.ok()) return Fail(serving.status(), kFailed);
    exposer = *std::move(serving);
    exposer->RegisterCollectable(metrics);
  }

  WorkerDiscovery discovery(options.workers, kDiscoveryInterval,
                            [&engine](const std::vector<std::string>& addresses) { engine.SetWorkers(addresses); });
  std::printf("listening on %s\n", (*server)->address().c_str());
  if (exposer != nullptr) std::printf("metrics on port %d\n", exposer->GetListeningPorts().front());
  std::fflush(stdout);

  stop.wait();
  engine.StartDrain();
  QUIRE_LOG(kInfo) << "draining: running requests have " << absl::FormatDuration(options.drain_timeout) << " to finish";
  const bool all_done = engine.Drain(options.drain_timeout);
  QUIRE_LOG(kInfo) << (all_done ? "drained" : "the drain timeout has passed; ending the requests that still run");
  engine.Stop();
  (*server)->Shutdown(kShutdownTimeout);
  return EXIT_SUCCESS;
}

int Main(int argc, char** argv) {
  const auto args = absl::MakeConstSpan(argv + 1, argc - 1);
  if (HasFlag(args, "--help")) return std::fputs(OptionsHelp().c_str(), stdout) < 0;
  if (HasFlag(args, "--version")) return std::printf("quire-manager %s\n", kVersion) < 0;
  const absl::StatusOr<ManagerOptions> options = ParseOptions(args);
  if (!options.ok()) return Fail(options.status(), kUsage);
  SetLogLevel(options->log_level);
  gpr_set_log_function(LogFromGrpc);

  std::signal(SIGPIPE, SIG_IGN);  // A reader of our log that goes away must not end us.
  std::promise<void> stop;
  OnStopSignal([&stop] { stop.set_value(); });
  return Serve(*options, stop.get_future());
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(argc, argv);
}
