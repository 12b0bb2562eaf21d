// SPDX-License-Identifier: Apache-2.0

#include "base/log_output.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/line_writer.h"
#include "base/log.h"

namespace quire {
namespace {

constexpr std::chrono::seconds kLongestFlush(1);

// It is null until StartLogThreads. They are never destroyed, because any thread may log while the process ends.
std::atomic<LineWriter*> g_errors{nullptr};
std::atomic<LineWriter*> g_output{nullptr};

std::string DroppedNote(int64_t num_dropped) {
  const std::string message =
      absl::StrCat(num_dropped, " log lines were dropped here, because standard error did not take them");
  if (GetLogFormat() == LogFormat::kJson) {
    return JsonLogLine("WARNING", message, {Named("num_dropped", num_dropped)}, nullptr, 0);
  }
  return absl::StrCat("W ", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ", message,
                      "\n");
}

// Lets the log thread finish, and ends the process by the same signal. It only uses what a signal handler may use.
void FlushAndDie(int signal) {
  const int error = errno;
  const LineWriter* const writer = g_errors;
  for (int i = 0; i < 100 && writer != nullptr && !writer->IsIdle(); ++i) {
    const timespec pause = {0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  errno = error;
  raise(signal);  // It has its default action again, and comes when this handler returns.
}

// Takes what is printed to `stderr`.
ssize_t LogFromStdio(void* /*cookie*/, const char* text, size_t size) {
  for (const absl::string_view line : absl::StrSplit(absl::string_view(text, size), '\n', absl::SkipEmpty())) {
    internal::LogLine(LogLevel::kWarning, nullptr, 0) << line;
  }
  return static_cast<ssize_t>(size);
}

void RedirectStdio() {
  FILE* const stream =
      fopencookie(nullptr, "w", {.read = nullptr, .write = LogFromStdio, .seek = nullptr, .close = nullptr});
  QUIRE_CHECK(stream != nullptr) << "cannot make a stream for the log";
  std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  stderr = stream;
}

void OpenStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open returns the lowest number that is free, which is `fd`.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) std::abort();
  }
}

}  // namespace

void StartLogThreads() {
  OpenStandardDescriptors();
  g_output = new LineWriter(STDOUT_FILENO, kMaxQueuedLogBytes, [](int64_t) { return std::string(); });
  g_errors = new LineWriter(STDERR_FILENO, kMaxQueuedLogBytes, DroppedNote);
  RedirectStdio();
  struct sigaction action = {};
  action.sa_handler = FlushAndDie;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) sigaction(signal, &action, nullptr);
}

void WriteLogLine(std::string_view line) {
  if (LineWriter* const writer = g_errors) return writer->Write(line);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void WriteLastLogLine(std::string_view line) {
  if (LineWriter* const writer = g_errors) {
    writer->WriteAlways(line);
    FlushLog();
    return;
  }
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void WriteStandardOutput(std::string_view text) {
  FlushLog();
  if (LineWriter* const writer = g_output) {
    writer->Write(text);
    writer->Flush(kLongestFlush);
    return;
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void FlushLog() {
  if (LineWriter* const writer = g_errors) writer->Flush(kLongestFlush);
}

int64_t NumDroppedLogLines() {
  const LineWriter* const writer = g_errors;
  return writer == nullptr ? 0 : writer->num_dropped();
}

}  // namespace quire
