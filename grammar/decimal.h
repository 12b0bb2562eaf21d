// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_DECIMAL_H_
#define QUIRE_GRAMMAR_DECIMAL_H_

#include <optional>
#include <string>
#include <string_view>

namespace quire::grammar {

// An exact number with finitely many decimal digits. Zero is not negative.
struct Decimal {
  bool is_negative = false;
  std::string whole;     // The digits before the point without leading zeros, "" if there are none.
  std::string fraction;  // The digits behind the point without trailing zeros.

  // Returns the number of a JSON text such as -12.50e3, or nothing if it would need more than `max_digits` digits on
  // one side of the point. REQUIRES: `text` is a number of JSON.
  static std::optional<Decimal> Of(std::string_view text, int max_digits);

  bool is_zero() const { return whole.empty() && fraction.empty(); }
  bool is_integer() const { return fraction.empty(); }
  Decimal Negated() const;

  bool operator==(const Decimal&) const = default;
};

// Returns whether a < b.
bool IsLess(const Decimal& a, const Decimal& b);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_DECIMAL_H_
