// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_OPTION_RANGE_H_
#define QUIRE_CLIENT_COMMANDS_OPTION_RANGE_H_

#include <CLI/CLI.hpp>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace quire {

// Returns whether the text is a number of the type T in [min, max].
template <typename T>
bool IsInRange(const std::string& text, T min, T max) {
  T value = 0;
  if constexpr (std::is_integral_v<T>) {
    return absl::SimpleAtoi(text, &value) && value >= min && value <= max;
  } else {
    return absl::SimpleAtod(text, &value) && value >= min && value <= max;
  }
}

// Returns the limits in words: "a whole number, 1 .. 1000", or "0.001 .. 1000000" for double.
template <typename T>
std::string RangeText(T min, T max) {
  if constexpr (std::is_integral_v<T>) {
    return absl::StrCat("a whole number, ", min, " .. ", max);
  } else {
    return absl::StrFormat("%.10g .. %.10g", min, max);
  }
}

// Returns a check of an option that takes a number in [min, max]; without limits any number that fits the type T. The
// error names the value and both limits: "is 5000, it must be a whole number, 1 .. 1000".
template <typename T>
CLI::Validator InRange(T min = std::numeric_limits<T>::lowest(), T max = std::numeric_limits<T>::max()) {
  const auto check = [min, max](const std::string& text) -> std::string {
    return IsInRange(text, min, max) ? "" : absl::StrCat("is ", text, ", it must be ", RangeText(min, max));
  };
  return CLI::Validator(check, "");
}

// Returns a transformation of an option that is a number of seconds of the type T in [min, max]. It may be written as a
// duration such as 500ms or 10m, as the flags of the services are: "10m" becomes "600".
template <typename T>
CLI::Validator InSeconds(T min, T max) {
  const auto transform = [min, max](std::string& text) -> std::string {
    absl::Duration duration;
    const bool is_duration = absl::ParseDuration(text, &duration);
    const std::string seconds = is_duration ? absl::StrFormat("%.15g", absl::ToDoubleSeconds(duration)) : text;
    if (!IsInRange(seconds, min, max)) {
      return absl::StrCat("is ", text, ", it must be ", RangeText(min, max),
                          " seconds, or a time such as 500ms, 30s or 10m");
    }
    text = seconds;
    return "";
  };
  return CLI::Validator(transform, "");
}

// Returns a check of an option that takes a duration such as 30s, from 1ms to 24h.
inline CLI::Validator IsDuration() {
  const auto check = [](const std::string& text) -> std::string {
    absl::Duration value;
    if (absl::ParseDuration(text, &value) && value >= absl::Milliseconds(1) && value <= absl::Hours(24)) return "";
    return absl::StrCat("is ", text, ", it must be 1ms .. 24h, such as 500ms, 30s or 10m");
  };
  return CLI::Validator(check, "");
}

// A check of an option that takes a number whose limits the manager knows.
inline CLI::Validator IsNumber() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    return absl::SimpleAtod(text, &value) ? "" : absl::StrCat("is ", text, ", it must be a number");
  };
  return CLI::Validator(check, "");
}

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_OPTION_RANGE_H_
