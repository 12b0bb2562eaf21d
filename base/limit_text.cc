// SPDX-License-Identifier: Apache-2.0

#include "base/limit_text.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace quire {

std::string LimitText(double limit) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  constexpr double kMostDigits = 1e10;  // Nobody counts the zeros of a larger number, or of a smaller fraction.
  constexpr double kLeastFraction = 1e-7;
  if (limit == kLargest) return "the largest float32 number (about 3.4e38)";
  if (limit == -kLargest) return "the lowest float32 number (about -3.4e38)";
  if (std::fabs(limit) < kMostDigits && std::floor(limit) == limit) return absl::StrCat(static_cast<int64_t>(limit));
  if (std::fabs(limit) >= 1 || std::fabs(limit) < kLeastFraction) {
    return absl::StrReplaceAll(absl::StrCat(limit), {{"e+", "e"}});
  }
  std::string text = absl::StrFormat("%.9f", limit);
  return text.substr(0, text.find_last_not_of('0') + 1);
}

}  // namespace quire
