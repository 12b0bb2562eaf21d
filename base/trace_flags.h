// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_TRACE_FLAGS_H_
#define QUIRE_BASE_TRACE_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/flags.h"

namespace quire {

// Where spans go, and which.
struct TraceOptions {
  std::string endpoint;           // http(s)://host[:port][/path]. Empty: there are no spans.
  std::string service_name = "";  // The resource attribute service.name.
  double sampling_ratio = 1;      // Share of the traces that begin here.

  bool is_on() const { return !endpoint.empty(); }
  // The address to which spans are sent. Without a path, the endpoint gets the one of OTLP.
  std::string Url() const;
};

// The flags --otlp-endpoint, --otlp-service-name and --otlp-sampling-ratio.
FlagGroup TraceFlagGroup();
// `program` is the name of the service unless the flag says another one.
absl::StatusOr<TraceOptions> ReadTraceFlags(const std::string& program);

}  // namespace quire

#endif  // QUIRE_BASE_TRACE_FLAGS_H_
