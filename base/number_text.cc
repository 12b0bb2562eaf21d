// SPDX-License-Identifier: Apache-2.0

#include "base/number_text.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

struct Unit {
  const char* suffix;
  double bytes;
};
constexpr Unit kUnits[] = {{"TiB", 1099511627776.0}, {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}};

}  // namespace

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

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  absl::string_view number = text;
  double factor = 1;
  for (const Unit& unit : kUnits) {
    if (absl::ConsumeSuffix(&number, unit.suffix)) {
      factor = unit.bytes;
      break;
    }
  }
  double value;
  if (!absl::SimpleAtod(number, &value) || !(value * factor >= 1 && value * factor < 9e18)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a number of bytes; examples: 1073741824, 512MiB, 1.5GiB"));
  }
  return static_cast<int64_t>(value * factor);
}

std::string FormatBytes(int64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes >= unit.bytes) return absl::StrFormat("%.1f %s", bytes / unit.bytes, unit.suffix);
  }
  return absl::StrCat(bytes, " bytes");
}

}  // namespace quire
