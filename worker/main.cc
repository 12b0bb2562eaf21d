#include <grpc/support/log.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>

#include "base/log.h"
#include "base/stop_signal.h"
#include "worker/options.h"
#include "worker/worker.h"

namespace quire {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

// gRPC reports in its own format what our statuses say in one line; it stays readable at level debug.
void LogFromGrpc(gpr_log_func_args* args) {
  QUIRE_LOG(kDebug) << "grpc: " << args->message;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "quire-worker: %s\n", std::string(status.message()).c_str());
  return code;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<WorkerCommandLine> line = ParseWorkerCommandLine(absl::MakeConstSpan(argv + 1, argc - 1));
  if (!line.ok()) return Fail(line.status(), kUsage);
  if (line->text) {
    std::fputs(line->text->c_str(), stdout);
    return EXIT_SUCCESS;
  }
  SetLogLevel(line->options.log_level);
  gpr_set_log_function(LogFromGrpc);

  std::atomic<bool> is_serving{false};
  std::promise<void> stop;
  OnStopSignal([&] {
    // Nothing to finish while the model is being loaded.
    if (!is_serving) std::_Exit(EXIT_SUCCESS);
    stop.set_value();
  });
  const absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(line->options);
  if (!worker.ok()) return Fail(worker.status(), kFailed);
  is_serving = true;
  std::fputs((*worker)->Summary().c_str(), stdout);
  std::fflush(stdout);
  stop.get_future().wait();
  QUIRE_LOG(kInfo) << "stopping";
  (*worker)->Stop();
  // Memory and the metrics server, which would take two seconds to stop, go with the process.
  std::fflush(nullptr);
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(argc, argv);
}
