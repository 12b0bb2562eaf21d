// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_SERVICE_MAIN_H_
#define QUIRE_SERVING_SERVICE_MAIN_H_

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/command_line.h"
#include "base/log_output.h"
#include "base/program_main.h"
#include "base/service_flags.h"

namespace quire {
namespace internal {

inline constexpr int kExitFailed = 1;

// Writes "quire-worker: <message>" to standard error, as text or as a line of JSON. Returns `code`.
int Fail(const char* program, const absl::Status& status, int code);

// Prints `text`. With JSON logs, each of its lines becomes a line of the log, whatever the log level.
void PrintSummary(const std::string& text);

// Turns off Abseil's search for deadlocks, sets the log level and format, starts the threads of the log, redirects the
// logs of gRPC and protobuf, raises the limit of open files, and handles SIGTERM and SIGINT. Until BeginServing is
// called, these signals end the process at once, because there is nothing to finish. Call it before any thread starts.
void PrepareProcess(const LogOptions& log);
// From now on, the two signals end WaitForStop. Call it before anybody is told that the service listens.
void BeginServing();
// Returns when one of the two signals has arrived since BeginServing.
void WaitForStop();

}  // namespace internal

// Ends the process without destructors, which would wait for threads that have nothing left to do. Waits for the last
// lines of the log, for at most a second. Thread-safe.
[[noreturn]] void ExitAtOnce(int code = EXIT_SUCCESS);

// Runs a service process from its command line to SIGTERM or SIGINT. `Service` has
//   static absl::StatusOr<std::unique_ptr<Service>> Start(const Options& options);
//   std::string Summary() const;  // The text to print when the service has started.
//   void Stop();                  // Ends the running calls.
// and `Options` has a field `LogOptions log`. Returns the exit code: 1 when the start failed, 2 for a wrong command
// line.
template <typename Service, typename Options>
int RunService(const char* program, const absl::StatusOr<CommandLine<Options>>& line) {
  if (!line.ok()) return internal::Fail(program, line.status(), kExitWrongUsage);
  if (line->text) {
    WriteStandardOutput(*line->text);
    return EXIT_SUCCESS;
  }
  internal::PrepareProcess(line->options.log);
  const auto service = Service::Start(line->options);
  if (!service.ok()) return internal::Fail(program, service.status(), internal::kExitFailed);
  internal::BeginServing();
  internal::PrintSummary((*service)->Summary());
  internal::WaitForStop();
  (*service)->Stop();
  ExitAtOnce();
}

}  // namespace quire

#endif  // QUIRE_SERVING_SERVICE_MAIN_H_
