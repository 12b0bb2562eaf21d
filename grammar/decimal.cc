// SPDX-License-Identifier: Apache-2.0

#include "grammar/decimal.h"

#include <algorithm>
#include <cstdint>

namespace quire::grammar {
namespace {

constexpr int64_t kMaxExponent = 10'000;

bool IsSmallerSize(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size();
  if (a.whole != b.whole) return a.whole < b.whole;
  return a.fraction < b.fraction;  // Without trailing zeros this is the order of the numbers.
}

}  // namespace

std::optional<Decimal> Decimal::Of(std::string_view text, int max_digits) {
  Decimal number;
  number.is_negative = text.starts_with('-');
  int64_t exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != text.npos) {
    std::string_view digits = text.substr(e + 1);
    const bool is_down = digits.starts_with('-');
    for (const char c : digits) {
      if (c >= '0' && c <= '9') exponent = std::min(exponent * 10 + (c - '0'), kMaxExponent);
    }
    if (is_down) exponent = -exponent;
    text = text.substr(0, e);
  }
  std::string digits;
  for (const char c : text.substr(0, text.find('.'))) {
    if (c != '-') digits += c;
  }
  const auto point = static_cast<int64_t>(digits.size()) + exponent;
  if (const size_t at = text.find('.'); at != text.npos) digits += text.substr(at + 1);
  const size_t first = std::min(digits.find_first_not_of('0'), digits.size());
  digits.erase(std::min(digits.find_last_not_of('0') + 1, digits.size()));  // npos + 1 is 0.
  if (first >= digits.size()) return Decimal();
  const auto num_digits = static_cast<int64_t>(digits.size());
  if (point - static_cast<int64_t>(first) > max_digits || num_digits - point > max_digits) return std::nullopt;
  if (point > num_digits) digits.append(static_cast<size_t>(point - num_digits), '0');
  if (point < 0) digits.insert(0, static_cast<size_t>(-point), '0');
  const auto split = static_cast<size_t>(std::max<int64_t>(point, 0));
  number.whole = digits.substr(0, split);
  number.whole.erase(0, std::min(number.whole.find_first_not_of('0'), number.whole.size()));
  number.fraction = digits.substr(split);
  return number;
}

Decimal Decimal::Negated() const {
  Decimal negated = *this;
  negated.is_negative = !is_zero() && !is_negative;
  return negated;
}

bool IsLess(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative) return a.is_negative;
  return a.is_negative ? IsSmallerSize(b, a) : IsSmallerSize(a, b);
}

}  // namespace quire::grammar
