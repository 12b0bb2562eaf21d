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

// What a request must keep to count as good; unset: anything.
struct ServiceLevel {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> itl_ms;  // Every gap between two responses of a sample, not their mean.
  std::optional<double> e2el_ms;

  bool is_set() const { return ttft_ms || tpot_ms || itl_ms || e2el_ms; }
};

// "ttft:500ms,itl:100ms" of ttft, tpot, itl and e2el; a number without a unit is in ms. INVALID_ARGUMENT says what is
// wrong.
absl::StatusOr<ServiceLevel> ParseServiceLevel(absl::string_view text);

struct LoadReport {
  int64_t num_sent = 0;  // Completed, failed and cancelled.
  int64_t num_completed = 0;
  int64_t num_cancelled = 0;  // Because the generator was stopped.
  // That arrived within the duration of an open loop and were not sent before its end; counted up to a million.
  int64_t num_unsent = 0;
  std::map<absl::StatusCode, int64_t> failures;
  absl::Status first_error;
  int64_t input_tokens = 0;   // Of the completed requests.
  int64_t output_tokens = 0;  // Likewise, of all samples.
  int64_t cached_tokens = 0;  // Of the input tokens, those that the prefix cache held.
  double duration_s = 0;      // From the first arrival to the end of the last request.
  double sending_s = 0;       // To the time of the last request that was sent.
  int max_in_flight = 0;      // That was reached.
  bool has_service_level = false;
  int64_t num_good = 0;  // Completed requests that kept it.
  // Of the completed requests, in ms, as `vllm bench serve` defines them but for where they begin.
  Samples ttft_ms;  // From the time at which it was to be sent to the first token.
  Samples tpot_ms;  // Per sample: from the first to the last token, by the number of tokens after the first.
  Samples itl_ms;   // From one response with tokens of a sample to the next.
  Samples e2el_ms;  // From the time at which it was to be sent to the end.
  // Of all requests that were sent, in ms: how late the generator itself was, without the wait for other requests that
  // max_in_flight asks for.
  Samples lag_ms;
  Samples held_ms;                         // That wait, of the requests that had it.
  std::optional<int64_t> num_preemptions;  // Of the manager meanwhile, if it was asked.

  int64_t num_failed() const;
  // True when the generator was late so often that the load was not what was asked for.
  bool could_not_keep_up() const;
};

// The report as one JSON object, with the names of `vllm bench serve` where it has one. What nothing was measured of is
// null.
nlohmann::ordered_json ToJson(const LoadReport& report);

// The same for people; what nothing was measured of is "-".
std::string ToText(const LoadReport& report);

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_LOAD_REPORT_H_
