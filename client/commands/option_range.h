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

// A check of an option that takes a whole number in [min, max]; without limits any number that fits the type T. The
// error names the value and both limits: "is 5000, it must be a whole number, 1 .. 1000".
template <typename T>
CLI::Validator InRange(T min = std::numeric_limits<T>::lowest(), T max = std::numeric_limits<T>::max()) {
  static_assert(std::is_integral_v<T>);
  const auto check = [min, max](const std::string& text) -> std::string {
    T value = 0;
    if (absl::SimpleAtoi(text, &value) && value >= min && value <= max) return "";
    return absl::StrCat("is ", text, ", it must be a whole number, ", min, " .. ", max);
  };
  return CLI::Validator(check, "");
}

// Returns a check of an option that takes any number in [min, max]: "is 0, it must be 0.001 .. 1000000".
template <>
inline CLI::Validator InRange<double>(double min, double max) {
  const auto check = [min, max](const std::string& text) -> std::string {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && value >= min && value <= max) return "";
    return absl::StrFormat("is %s, it must be %.10g .. %.10g", text, min, max);
  };
  return CLI::Validator(check, "");
}

// Returns a transformation of an option that is a number of seconds of the type T in [min, max]. It may be written as a
// duration such as 500ms or 10m, as the flags of the services are: "10m" becomes "600".
template <typename T>
CLI::Validator InSeconds(T min, T max) {
  const auto transform = [check = InRange<T>(min, max)](std::string& text) -> std::string {
    absl::Duration duration;
    std::string seconds = text;
    if (absl::ParseDuration(text, &duration)) seconds = absl::StrFormat("%.15g", absl::ToDoubleSeconds(duration));
    if (const std::string error = check(seconds); !error.empty()) {
      const std::string allowed = error.substr(error.find(", it must be"));
      return absl::StrCat("is ", text, allowed, " seconds, or a time such as 500ms, 30s or 10m");
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
