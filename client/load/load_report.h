// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_LOAD_REPORT_H_
#define QUIRE_CLIENT_LOAD_LOAD_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/load/samples.h"

namespace quire {

// The limits that a good request keeps. An unset limit allows anything.
struct ServiceLevel {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> itl_ms;  // Limit of every gap between two responses of a sample, not of their mean.
  std::optional<double> e2el_ms;

  bool is_set() const { return ttft_ms || tpot_ms || itl_ms || e2el_ms; }
};

// Parses "ttft:500ms,itl:100ms". The names are ttft, tpot, itl and e2el; a number without a unit is in ms.
// INVALID_ARGUMENT names the bad part.
absl::StatusOr<ServiceLevel> ParseServiceLevel(absl::string_view text);

struct LoadReport {
  int64_t num_sent = 0;  // Completed, failed or cancelled requests.
  int64_t num_completed = 0;
  int64_t num_cancelled = 0;  // Requests that ended because the generator was stopped.
  // Requests that arrived within the duration of an open loop but were not sent. Counted up to a million.
  int64_t num_unsent = 0;
  std::map<absl::StatusCode, int64_t> failures;
  absl::Status first_error;
  int64_t input_tokens = 0;   // Prompt tokens of the completed requests.
  int64_t output_tokens = 0;  // Output tokens of the completed requests, of all samples.
  int64_t cached_tokens = 0;  // Input tokens that were in the prefix cache.
  double duration_s = 0;      // Time from the first arrival to the end of the last request.
  double sending_s = 0;       // Time from the first arrival until the last request was sent.
  int max_in_flight = 0;      // The largest number of requests in flight.
  bool has_service_level = false;
  int64_t num_good = 0;  // Completed requests that kept the service level.
  // Latencies of the completed requests in ms. They are defined as in `vllm bench serve`, except for their beginning.
  Samples ttft_ms;  // Time to first token: from the time at which the request was due.
  Samples tpot_ms;  // Time per output token of a sample: from its first to its last token, divided by their number - 1.
  Samples itl_ms;   // Inter-token latency: from one response with tokens of a sample to the next.
  Samples e2el_ms;  // End-to-end latency: from the time at which the request was due to its end.
  // The generator's own delay of each request in ms, without the wait that max_in_flight asks for.
  Samples lag_ms;
  Samples held_ms;                         // The wait in ms of the requests that max_in_flight held back.
  std::optional<int64_t> num_preemptions;  // Preemptions during the load, if the manager told them.

  int64_t num_failed() const;
  // True when the generator was late so often that the load was not the one that was asked for.
  bool could_not_keep_up() const;
};

// The report as one JSON object, with the names of `vllm bench serve` where it has one. A value without measurements is
// null.
nlohmann::ordered_json ToJson(const LoadReport& report);

// The report for people. A value without measurements is "-".
std::string ToText(const LoadReport& report);

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_LOAD_REPORT_H_
