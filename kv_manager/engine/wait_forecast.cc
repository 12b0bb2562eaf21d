// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/wait_forecast.h"

#include <algorithm>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_reason.h"

namespace quire {
namespace {

// A request is refused when it would end after this share of the time until its deadline. The rest is for requests
// that start later and slow it down.
constexpr double kMaxEndShare = 0.75;
// Ratio to the time of the fastest steps above which steps are slow because of load.
constexpr double kSlowFactor = 2;
constexpr int64_t kMinRetryUs = 100'000;
constexpr int64_t kMaxRetryUs = 30'000'000;

std::string Milliseconds(int64_t us) {
  return absl::StrCat(us / 1000);
}

absl::Status Refusal(const std::string& message, int64_t expected_us, int64_t limit_us) {
  const int64_t delay_us = std::clamp(expected_us - limit_us, kMinRetryUs, kMaxRetryUs);
  return WithRetryDelay(WithReason(absl::ResourceExhaustedError(message), "OVERLOADED",
                                   {{"expected_ms", Milliseconds(expected_us)}, {"limit_ms", Milliseconds(limit_us)}}),
                        delay_us / 1000);
}

}  // namespace

int WaitForecast::OutputSizeOf(int max_tokens) {
  return std::min(static_cast<int>(absl::bit_width(static_cast<uint32_t>(std::max(max_tokens, 1)))) - 1,
                  kNumOutputSizes - 1);
}

int64_t WaitForecast::WaitUs(int64_t num_tokens_ahead) const {
  return static_cast<int64_t>(us_per_waiting_token * static_cast<double>(num_tokens_ahead));
}

int64_t WaitForecast::RowWaitUs(int64_t num_tokens_ahead, const Request& request) const {
  if (tokens_per_waiting == 0) return num_free_rows > 0 ? 0 : static_cast<int64_t>(ends_us.front());
  // The mean may be that of earlier requests, and there are no more ahead than wait.
  const auto num_ahead = std::min(static_cast<int64_t>(static_cast<double>(num_tokens_ahead) / tokens_per_waiting),
                                  int64_t{std::max(num_requests - num_running, 0)});
  const int64_t num_ends = num_ahead - num_free_rows;  // Rows that become free before the one for the request.
  if (num_ends < 0) return 0;
  if (num_ends < num_running) return EndUs(static_cast<int>(num_ends));
  const int64_t num_rounds = 1 + (num_ends - num_running) / std::max(num_running + num_free_rows, 1);
  const double run_us = step_us * output_tokens[OutputSizeOf(request.max_tokens)];
  return static_cast<int64_t>(static_cast<double>(num_rounds) * run_us);
}

int64_t WaitForecast::EndUs(int index) const {
  const double place = static_cast<double>(index) * (kNumEnds - 1) / std::max(num_running - 1, 1);
  const auto before = static_cast<size_t>(place);
  const size_t behind = std::min<size_t>(before + 1, kNumEnds - 1);
  const double share = place - static_cast<double>(before);
  return static_cast<int64_t>((1 - share) * ends_us[before] + share * ends_us[behind]);
}

int64_t WaitForecast::OutputUs(const Request& request) const {
  if (step_requests == 0 || num_requests == 0) return 0;
  const double us_per_one = std::max((step_us - least_step_us) / step_requests, us_per_request);
  // When requests wait, no more of them fit into a step than now.
  const int num_rows = num_running + num_free_rows;  // 0: not known.
  const double num_together = us_per_waiting_token > 0 ? std::max<double>(step_requests, num_running)
                              : num_rows > 0           ? std::min(num_requests + 1, num_rows)
                                                       : num_requests + 1;
  const double expected_step_us = least_step_us + us_per_one * num_together;
  if (expected_step_us <= kSlowFactor * least_step_us) return 0;
  return static_cast<int64_t>(expected_step_us * output_tokens[OutputSizeOf(request.max_tokens)]);
}

absl::Status CheckWait(const WaitLimits& limits, const WaitForecast& forecast, int64_t num_tokens_ahead,
                       const Request& request, int64_t now_us) {
  const bool has_deadline = request.deadline_us != kNever;
  if (request.deadline_us <= now_us) return absl::OkStatus();
  int64_t wait_us = forecast.WaitUs(num_tokens_ahead);
  const bool is_overloaded = forecast.is_overloaded && now_us - forecast.calm_since_us < limits.overloaded_wait_us();
  if (has_deadline || is_overloaded) {
    wait_us = std::max(wait_us, forecast.RowWaitUs(num_tokens_ahead, request));
  }
  if (!has_deadline) {
    const int64_t limit_us = is_overloaded ? limits.overloaded_wait_us() : limits.max_wait_us;
    if (wait_us <= limit_us) return absl::OkStatus();
    return Refusal(absl::StrFormat("the request would wait %d ms before it runs, the limit is %d ms for a request "
                                   "without a deadline%s (--max-queue-wait of the manager)",
                                   wait_us / 1000, limit_us / 1000, is_overloaded ? " while the overload lasts" : ""),
                   wait_us, limit_us);
  }
  const int64_t left_us = request.deadline_us - now_us;
  const auto wait_limit_us = static_cast<int64_t>(limits.max_deadline_share * static_cast<double>(left_us));
  if (wait_us > wait_limit_us) {
    return Refusal(absl::StrFormat("the request would wait %d ms before it runs, the limit is %d ms, which is %g of "
                                   "the time until its deadline (--max-queue-share)",
                                   wait_us / 1000, wait_limit_us / 1000, limits.max_deadline_share),
                   wait_us, wait_limit_us);
  }
  const int64_t end_us = wait_us + forecast.OutputUs(request);
  const auto end_limit_us = static_cast<int64_t>(kMaxEndShare * static_cast<double>(left_us));
  if (forecast.OutputUs(request) > 0 && end_us > end_limit_us) {
    return Refusal(absl::StrFormat("the request would end in %d ms, the limit is %d ms, which is %g of the time until "
                                   "its deadline",
                                   end_us / 1000, end_limit_us / 1000, kMaxEndShare),
                   end_us, end_limit_us);
  }
  return absl::OkStatus();
}

}  // namespace quire
