// SPDX-License-Identifier: Apache-2.0

#include "base/status_reason.h"

#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

constexpr char kReasonPayload[] = "quire/reason";
constexpr char kRetryDelayPayload[] = "quire/retry_delay_ms";

// Separates the word and the metadata. No name and no value has this byte.
constexpr char kSeparator = '\0';

}  // namespace

absl::Status WithReason(absl::Status status, absl::string_view word,
                        const std::map<std::string, std::string>& metadata) {
  std::string payload(word);
  for (const auto& [name, value] : metadata) {
    payload += kSeparator;
    payload += name;
    payload += kSeparator;
    payload += value;
  }
  status.SetPayload(kReasonPayload, absl::Cord(payload));
  return status;
}

std::optional<StatusReason> ReasonOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kReasonPayload);
  if (!payload.has_value()) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(std::string(*payload), kSeparator);
  StatusReason reason{.word = parts[0], .metadata = {}};
  for (size_t i = 1; i + 1 < parts.size(); i += 2) reason.metadata.emplace(parts[i], parts[i + 1]);
  return reason;
}

absl::Status WithRetryDelay(absl::Status status, int64_t delay_ms) {
  status.SetPayload(kRetryDelayPayload, absl::Cord(absl::StrCat(delay_ms)));
  return status;
}

std::optional<int64_t> RetryDelayOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryDelayPayload);
  int64_t delay_ms = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &delay_ms)) return std::nullopt;
  return delay_ms;
}

}  // namespace quire
