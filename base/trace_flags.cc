// SPDX-License-Identifier: Apache-2.0

#include "base/trace_flags.h"

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/number_text.h"

ABSL_FLAG(std::string, otlp_endpoint, "",
          "Address of an OpenTelemetry collector, such as http://127.0.0.1:4318. It gets the spans of requests by OTLP "
          "over HTTP (JSON), at the path /v1/traces unless the address has a path. Empty: no spans are made.");
ABSL_FLAG(std::string, otlp_service_name, "",
          "Name of this service in its spans (service.name). Empty: the name of the program.");
ABSL_FLAG(double, otlp_sampling_ratio, 1,
          "Share of the traces that begin at this service and are exported, 0 to 1. The caller decides about a trace "
          "that it has begun, by the flag of its traceparent.");

namespace quire {
namespace {

constexpr char kTracesPath[] = "/v1/traces";

// Returns the length of "http://" or "https://" at the beginning. 0: neither is there.
size_t SchemeLength(const std::string& url) {
  for (const char* const scheme : {"http://", "https://"}) {
    if (absl::StartsWith(url, scheme)) return std::string(scheme).size();
  }
  return 0;
}

}  // namespace

std::string TraceOptions::Url() const {
  const size_t path = endpoint.find('/', SchemeLength(endpoint));
  if (path == endpoint.npos) return absl::StrCat(endpoint, kTracesPath);
  return path + 1 == endpoint.size() ? absl::StrCat(endpoint.substr(0, path), kTracesPath) : endpoint;
}

FlagGroup TraceFlagGroup() {
  return {"Traces (OpenTelemetry):", {"otlp_endpoint", "otlp_service_name", "otlp_sampling_ratio"}};
}

absl::StatusOr<TraceOptions> ReadTraceFlags(const std::string& program) {
  TraceOptions options{.endpoint = absl::GetFlag(FLAGS_otlp_endpoint),
                       .service_name = absl::GetFlag(FLAGS_otlp_service_name),
                       .sampling_ratio = absl::GetFlag(FLAGS_otlp_sampling_ratio)};
  if (options.service_name.empty()) options.service_name = program;
  const size_t scheme = SchemeLength(options.endpoint);
  const bool has_host = scheme > 0 && options.endpoint.find('/', scheme) != scheme && options.endpoint.size() > scheme;
  if (options.is_on() && !has_host) {
    return absl::InvalidArgumentError(
        absl::StrCat("--otlp-endpoint is '", options.endpoint, "', it must be http://host:port or https://host:port"));
  }
  if (!(options.sampling_ratio >= 0 && options.sampling_ratio <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--otlp-sampling-ratio is ", NumberText(options.sampling_ratio), ", it must be in [0, 1]"));
  }
  return options;
}

}  // namespace quire
