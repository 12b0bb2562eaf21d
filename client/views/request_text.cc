// SPDX-License-Identifier: Apache-2.0

#include "client/views/request_text.h"

#include "absl/time/time.h"

namespace quire {

const char* StateOf(v1::RequestState state) {
  switch (state) {
    case v1::REQUEST_STATE_RUNNING:
      return "running";
    case v1::REQUEST_STATE_SWAPPED:
      return "swapped";
    case v1::REQUEST_STATE_WAITING:
      return "waiting";
    default:
      return "unknown";
  }
}

std::string DescribeAge(uint64_t age_ms) {
  const absl::Duration age = absl::Milliseconds(age_ms);
  const absl::Duration unit = age < absl::Seconds(10) ? absl::Milliseconds(100) : absl::Seconds(1);
  return absl::FormatDuration(absl::Floor(age, unit));
}

}  // namespace quire
