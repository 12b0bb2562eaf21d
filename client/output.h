#ifndef QUIRE_CLIENT_OUTPUT_H_
#define QUIRE_CLIENT_OUTPUT_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace quire {

// How quirectl ends. Documented in its --help; scripts rely on the numbers.
enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,       // Any other error.
  kExitUsage = 2,        // The command line is wrong.
  kExitUnavailable = 3,  // The manager cannot be reached or cannot serve now; trying again may help.
  kExitRejected = 4,     // The manager refused the request; see the message.
  kExitPartial = 5,      // The stream broke after text had been printed.
};

enum class OutputFormat { kText, kJson };

// Prints `message` as one line of JSON with the names of the proto fields.
void PrintJson(const google::protobuf::Message& message);

// Prints "quirectl: ..." to standard error and returns the exit code that belongs to the status. `endpoint` helps the
// reader when nobody answers there.
int ReportError(const absl::Status& status, const std::string& endpoint);

}  // namespace quire

#endif  // QUIRE_CLIENT_OUTPUT_H_
