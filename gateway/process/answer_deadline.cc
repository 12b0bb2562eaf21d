// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/answer_deadline.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/field_reader.h"

namespace quire {
namespace {

constexpr char kHeader[] = "X-Request-Timeout";
constexpr double kMinSeconds = 0.001;
constexpr double kMaxSeconds = 86400;
// A client that waits for t learns what the server says if it comes this part of t earlier, within these limits.
constexpr int kMarginPart = 50;
constexpr std::chrono::milliseconds kMinMargin(100);
constexpr std::chrono::milliseconds kMaxMargin(1000);

// Returns nothing if the text is no number of seconds above 0.
std::optional<double> Seconds(absl::string_view text) {
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0)) return std::nullopt;
  return seconds;
}

// Returns the number if the text consists of digits and at most one point, such as 2.5. Numbers in other forms, such as
// 0x10, mean different things to different programs.
std::optional<double> PlainNumber(absl::string_view text) {
  const bool is_plain = !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0])) &&
                        text.find_first_not_of("0123456789.") == text.npos &&
                        std::count(text.begin(), text.end(), '.') <= 1;
  return is_plain ? Seconds(text) : std::nullopt;
}

// Longer times than a day are a day.
std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(static_cast<int64_t>(std::min(seconds, kMaxSeconds) * 1000), 1));
}

// Returns when the server must answer a client that waits for this time. What is on its way takes time, too.
std::chrono::milliseconds BeforeEndOf(std::chrono::milliseconds wait) {
  const auto margin = std::min(std::clamp(wait / kMarginPart, kMinMargin, kMaxMargin), wait / 2);
  return std::max(wait - margin, std::chrono::milliseconds(1));
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
  if (request.timeout.has_value()) {
    const std::optional<double> seconds = PlainNumber(*request.timeout);
    if (!seconds.has_value() || *seconds < kMinSeconds || *seconds > kMaxSeconds) {
      return FieldError(kHeader, absl::StrCat(Describe(Json(*request.timeout)), ", it must be one number of seconds, ",
                                              "such as 2.5, from ", kMinSeconds, " to ", kMaxSeconds));
    }
    shorten(Milliseconds(*seconds));
  } else if (!streams) {
    if (const auto seconds = Seconds(request.read_timeout); seconds.has_value()) {
      shorten(BeforeEndOf(Milliseconds(*seconds)));
    }
  }
  return timeout.has_value() ? now + *timeout : std::chrono::steady_clock::time_point::max();
}

}  // namespace quire
