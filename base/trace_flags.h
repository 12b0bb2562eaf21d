// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_TRACE_FLAGS_H_
#define QUIRE_BASE_TRACE_FLAGS_H_

#include <string>

#include "base/settings.h"

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

// Adds a group with the flags --otlp-endpoint, --otlp-service-name and --otlp-sampling-ratio.
void AddTraceFlags(TraceOptions* options, Settings* table);

}  // namespace quire

#endif  // QUIRE_BASE_TRACE_FLAGS_H_
