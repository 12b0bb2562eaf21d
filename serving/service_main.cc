// SPDX-License-Identifier: Apache-2.0

#include "serving/service_main.h"

#include <grpc/support/log.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/file_limit.h"
#include "base/heap_trimmer.h"
#include "base/lock_checks.h"
#include "base/log_output.h"
#include "base/stop_signal.h"
#include "google/protobuf/stubs/logging.h"

namespace quire {
namespace internal {
namespace {

constexpr int kMaxLibraryLinesPerSecond = 50;
// How often a process looks whether it should give memory back, and how much it may keep.
constexpr std::chrono::seconds kHeapPeriod(10);
constexpr int64_t kMaxFreeHeap = 16 << 20;

std::atomic<bool> g_is_serving{false};

std::promise<void>& Stop() {
  static auto* const stop = new std::promise<void>();
  return *stop;
}

// Logs the message of a library at level debug. The rate is limited, because anybody who reaches a port can make gRPC
// complain as often as they like.
void LogFromLibrary(const char* library, absl::string_view message) {
  if (GetLogLevel() > LogLevel::kDebug) return;
  static LogLimiter* const limiter = new LogLimiter(kMaxLibraryLinesPerSecond);
  const std::optional<int64_t> num_dropped = limiter->Admit(SteadyClock().NowMicros());
  if (!num_dropped.has_value()) return;
  if (*num_dropped > 0) {
    QUIRE_LOG(kDebug) << Named("num_dropped", *num_dropped) << " log lines of libraries were dropped";
  }
  QUIRE_LOG(kDebug) << library << ": " << message;
}

// gRPC logs, in its own format, errors that our statuses report already. A failed assertion ends the process.
void LogFromGrpc(gpr_log_func_args* args) {
  if (absl::StartsWith(args->message, "assertion failed")) {
    QUIRE_LOG(kError) << "grpc: " << args->message << " at " << args->file << ":" << args->line;
    return;
  }
  LogFromLibrary("grpc", args->message);
}

// Protobuf logs messages that it cannot parse.
void LogFromProtobuf(google::protobuf::LogLevel /*level*/, const char* /*file*/, int /*line*/,
                     const std::string& message) {
  LogFromLibrary("protobuf", message);
}

}  // namespace

int Fail(const char* program, const absl::Status& status, int code) {
  const std::string message = absl::StrCat(program, ": ", status.message());
  const bool is_json = GetLogFormat() == LogFormat::kJson;
  WriteLastLogLine(is_json ? JsonLogLine("CRITICAL", message, {}, nullptr, 0) : message + "\n");
  return code;
}

void PrintSummary(const std::string& text) {
  if (GetLogFormat() == LogFormat::kText) return WriteStandardOutput(text);
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines += JsonLogLine("INFO", std::string(absl::StripLeadingAsciiWhitespace(line)), {}, nullptr, 0);
  }
  WriteStandardOutput(lines);
}

void PrepareProcess(const LogOptions& log) {
  SkipLockChecks();
  SetLogLevel(log.level);
  SetLogFormat(log.format);
  gpr_set_log_function(LogFromGrpc);
  google::protobuf::SetLogHandler(LogFromProtobuf);
  RaiseFileLimit();
  std::signal(SIGPIPE, SIG_IGN);  // The process must survive the reader of its log.
  OnStopSignal([] {
    if (!g_is_serving) ExitAtOnce();
    QUIRE_LOG(kInfo) << "stopping after a signal; a second signal ends the process at once";
    Stop().set_value();
  });
  StartLogThreads();
}

void BeginServing() {
  g_is_serving = true;
}

void WaitForStop() {
  std::future<void> stop = Stop().get_future();
  HeapTrimmer heap(kMaxFreeHeap);
  while (stop.wait_for(kHeapPeriod) == std::future_status::timeout) heap.TrimIfGrown();
}

}  // namespace internal

void ExitAtOnce(int code) {
  FlushLog();
  std::_Exit(code);
}

}  // namespace quire
