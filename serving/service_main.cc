#include "serving/service_main.h"

#include <grpc/support/log.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <future>

#include "base/stop_signal.h"
#include "google/protobuf/stubs/logging.h"

namespace quire::internal {
namespace {

std::atomic<bool> g_is_serving{false};

std::promise<void>& Stop() {
  static auto* const stop = new std::promise<void>();
  return *stop;
}

// gRPC reports in its own format what our statuses say in one line; it stays readable at level debug.
void LogFromGrpc(gpr_log_func_args* args) {
  QUIRE_LOG(kDebug) << "grpc: " << args->message;
}

// Likewise what protobuf says of messages that it cannot read.
void LogFromProtobuf(google::protobuf::LogLevel /*level*/, const char* /*file*/, int /*line*/,
                     const std::string& message) {
  QUIRE_LOG(kDebug) << "protobuf: " << message;
}

}  // namespace

int Fail(const char* program, const absl::Status& status, int code) {
  std::fprintf(stderr, "%s: %s\n", program, std::string(status.message()).c_str());
  return code;
}

void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void PrepareProcess(LogLevel log_level) {
  SetLogLevel(log_level);
  gpr_set_log_function(LogFromGrpc);
  google::protobuf::SetLogHandler(LogFromProtobuf);
  std::signal(SIGPIPE, SIG_IGN);  // A reader of our log that goes away must not end us.
  OnStopSignal([] {
    if (!g_is_serving) ExitAtOnce();
    QUIRE_LOG(kInfo) << "told to stop; a second signal ends it at once";
    Stop().set_value();
  });
}

void WaitForStop() {
  g_is_serving = true;
  Stop().get_future().wait();
}

void ExitAtOnce() {
  std::fflush(nullptr);
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace quire::internal
