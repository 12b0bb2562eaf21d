// SPDX-License-Identifier: Apache-2.0

#include "base/trace_flags.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

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

absl::Status CheckEndpoint(absl::string_view name, const std::string& url) {
  const size_t scheme = SchemeLength(url);
  if (url.empty() || (scheme > 0 && url.find('/', scheme) != scheme && url.size() > scheme)) return absl::OkStatus();
  return InvalidArgument(FlagAsTyped(name), " is '", url, "', it must be http://host:port or https://host:port");
}

}  // namespace

std::string TraceOptions::Url() const {
  const size_t path = endpoint.find('/', SchemeLength(endpoint));
  if (path == endpoint.npos) return absl::StrCat(endpoint, kTracesPath);
  return path + 1 == endpoint.size() ? absl::StrCat(endpoint.substr(0, path), kTracesPath) : endpoint;
}

void AddTraceFlags(TraceOptions* options, Settings* table) {
  table->Group("Traces (OpenTelemetry):");
  table->Add(
      "otlp_endpoint", &options->endpoint,
      "Address of an OpenTelemetry collector, such as http://127.0.0.1:4318. It gets the spans of requests by OTLP "
      "over HTTP (JSON), at the path /v1/traces unless the address has a path. Empty: no spans are made.",
      &CheckEndpoint);
  table->Add("otlp_service_name", &options->service_name,
             "Name of this service in its spans (service.name). Empty: the name of the program.");
  table->Add("otlp_sampling_ratio", &options->sampling_ratio, {0, 1, "in [0, 1]"},
             "Share of the traces that begin at this service and are exported, 0 to 1. The caller decides about a "
             "trace that it has begun, by the flag of its traceparent.");
}

}  // namespace quire
