#ifndef QUIRE_SERVING_SERVICE_MAIN_H_
#define QUIRE_SERVING_SERVICE_MAIN_H_

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flags.h"
#include "base/log_flags.h"

namespace quire {
namespace internal {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// "quire-worker: <message>" on standard error, or as a line of JSON. Returns `code`.
int Fail(const char* program, const absl::Status& status, int code);

void Print(const std::string& text);
// The same; in JSON each line is a line of the log, whatever its level.
void PrintSummary(const std::string& text);

// Log level and format, gRPC's own log, and SIGTERM and SIGINT: until WaitForStop is called they end the process at
// once, because there is nothing to finish. Call it before any thread starts.
void PrepareProcess(const LogOptions& log);
void WaitForStop();

// Without destructors: memory and the metrics server, which would take two seconds to stop, go with the process.
[[noreturn]] void ExitAtOnce();

}  // namespace internal

// The life of a service process, from its command line to SIGTERM or SIGINT. `Service` has
//   static absl::StatusOr<std::unique_ptr<Service>> Start(const Options& options);
//   std::string Summary() const;  // Printed once it serves.
//   void Stop();                  // Ends its calls.
// and `Options` has LogOptions log. Returns the exit code: 1 when the start failed, 2 for a wrong command line.
template <typename Service, typename Options>
int RunService(const char* program, const absl::StatusOr<CommandLine<Options>>& line) {
  if (!line.ok()) return internal::Fail(program, line.status(), internal::kExitUsage);
  if (line->text) {
    internal::Print(*line->text);
    return EXIT_SUCCESS;
  }
  internal::PrepareProcess(line->options.log);
  const auto service = Service::Start(line->options);
  if (!service.ok()) return internal::Fail(program, service.status(), internal::kExitFailed);
  internal::PrintSummary((*service)->Summary());
  internal::WaitForStop();
  (*service)->Stop();
  internal::ExitAtOnce();
}

}  // namespace quire

#endif  // QUIRE_SERVING_SERVICE_MAIN_H_
