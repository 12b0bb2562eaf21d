// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_NUMBER_TEXT_H_
#define QUIRE_GRAMMAR_NUMBER_TEXT_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/decimal.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

// The most digits on one side of the point, unless a bound has more before the point.
inline constexpr int kMaxNumberDigits = 18;
// The largest `multipleOf`, counted in units of its last digit, and the largest common multiple of several.
inline constexpr int64_t kMaxModulus = 4096;

// The numbers between two bounds, which may be missing, that are multiples of some numbers and not of others.
struct NumberRule {
  std::optional<Decimal> low = {};
  std::optional<Decimal> high = {};
  bool excludes_low = false;
  bool excludes_high = false;
  bool is_integer = false;  // The texts have no point.
  std::vector<Decimal> multiples_of = {};
  std::vector<Decimal> no_multiples_of = {};

  // These narrow the bounds.
  void AtLeast(const Decimal& bound, bool is_excluded);
  void AtMost(const Decimal& bound, bool is_excluded);
};

// Returns whether a number fits.
bool Fits(const Decimal& number, const NumberRule& rule);

// Adds the texts of the numbers that fit. They have no exponent, and digits behind the point only if not is_integer.
// INVALID_ARGUMENT when the multiples need too large a modulus. REQUIRES: multiples are above 0.
absl::StatusOr<ExprId> AddNumbers(const NumberRule& rule, SyntaxTree* tree);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_NUMBER_TEXT_H_
