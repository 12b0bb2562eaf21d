// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_STATUS_REASON_H_
#define QUIRE_BASE_STATUS_REASON_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// Details that an absl::Status carries from the place that makes it to the edge of the process, where they become
// google.rpc details. They are payloads without protobuf, so that every floor can attach them. Pure functions.

namespace quire {

// Why a call was refused, for programs.
struct StatusReason {
  std::string word;                             // Stable, UPPER_SNAKE_CASE.
  std::map<std::string, std::string> metadata;  // The numbers behind it, by name.

  bool operator==(const StatusReason&) const = default;
};

// The same status with this reason. A second call replaces the reason of the first.
absl::Status WithReason(absl::Status status, absl::string_view word,
                        const std::map<std::string, std::string>& metadata = {});

// The reason that WithReason gave, if any.
std::optional<StatusReason> ReasonOf(const absl::Status& status);

// The same status with the advice to try again after `delay_ms` milliseconds.
absl::Status WithRetryDelay(absl::Status status, int64_t delay_ms);

// The delay in milliseconds that WithRetryDelay gave, if any.
std::optional<int64_t> RetryDelayOf(const absl::Status& status);

}  // namespace quire

#endif  // QUIRE_BASE_STATUS_REASON_H_
