// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/answer_deadline.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/field_reader.h"

namespace quire {
namespace {

constexpr char kHeader[] = "X-Request-Timeout";
constexpr double kMaxSeconds = 86400;

// Returns nothing if the text is no number of seconds above 0. Longer times than a day are a day.
std::optional<std::chrono::milliseconds> Seconds(const std::string& text) {
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0)) return std::nullopt;
  return std::chrono::milliseconds(std::max<int64_t>(static_cast<int64_t>(std::min(seconds, kMaxSeconds) * 1000), 1));
}

}  // namespace

std::variant<std::chrono::steady_clock::time_point, ApiError> AnswerDeadline(
    const WebRequest& request, bool streams, std::chrono::milliseconds limit,
    std::chrono::steady_clock::time_point now) {
  std::optional<std::chrono::milliseconds> timeout;
  const auto shorten = [&timeout](std::chrono::milliseconds other) {
    timeout = std::min(timeout.value_or(other), other);
  };
  if (limit > std::chrono::milliseconds(0)) shorten(limit);
  if (!request.timeout.empty()) {
    const std::optional<std::chrono::milliseconds> wanted = Seconds(request.timeout);
    if (!wanted.has_value()) {
      return FieldError(kHeader, absl::StrCat(Describe(Json(request.timeout)),
                                              ", it must be a number of seconds above 0, such as 2.5"));
    }
    shorten(*wanted);
  } else if (!streams) {
    if (const auto wanted = Seconds(request.read_timeout); wanted.has_value()) shorten(*wanted);
  }
  return timeout.has_value() ? now + *timeout : std::chrono::steady_clock::time_point::max();
}

}  // namespace quire
