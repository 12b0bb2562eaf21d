// SPDX-License-Identifier: Apache-2.0

#include "scheduler/scheduler_options.h"

#include "absl/strings/str_cat.h"
#include "base/number_text.h"

namespace quire {

absl::Status CheckSchedulerOptions(const SchedulerOptions& options) {
  const struct {
    const char* name;
    int value;
    int least;
  } counts[] = {
      {"max_tokens_per_step", options.max_tokens_per_step, 1},
      {"max_chunk_tokens", options.max_chunk_tokens, 1},
      {"max_sequences", options.max_sequences, 1},
      {"max_waiting_requests", options.max_waiting_requests, 1},
      {"max_context_tokens", options.max_context_tokens, 2},
      {"max_plans_in_flight", options.max_plans_in_flight, 1},
  };
  for (const auto& count : counts) {
    if (count.value < count.least) {
      return absl::InvalidArgumentError(
          absl::StrCat(count.name, " is ", count.value, ", it must be at least ", count.least));
    }
  }
  if (options.max_plans_in_flight > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_plans_in_flight is ", options.max_plans_in_flight, ", it must be at most 2"));
  }
  if (!(options.watermark >= 0 && options.watermark < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("watermark is ", NumberText(options.watermark), ", it must be in [0, 1)"));
  }
  if (!(options.waiting_served_ratio >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("waiting_served_ratio is ", options.waiting_served_ratio, ", it must be at least 0"));
  }
  return CheckTenantShares(options.tenants);
}

}  // namespace quire
