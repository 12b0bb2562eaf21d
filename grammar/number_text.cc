// SPDX-License-Identifier: Apache-2.0

#include "grammar/number_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire::grammar {
namespace {

// Says which remainders a multiple has, and which it must not have. All numbers are counted in units of 10^-num_digits.
struct Remainders {
  int64_t modulus = 1;
  int num_digits = 0;
  std::vector<int64_t> multiples_of;
  std::vector<int64_t> no_multiples_of;

  bool is_empty() const { return multiples_of.empty() && no_multiples_of.empty(); }
  // `has_more` says that a digit behind the last unit is not 0.
  bool Allow(int64_t remainder, bool has_more) const {
    const auto divides = [&](int64_t divisor) { return !has_more && remainder % divisor == 0; };
    return std::all_of(multiples_of.begin(), multiples_of.end(), divides) &&
           std::none_of(no_multiples_of.begin(), no_multiples_of.end(), divides);
  }
};

absl::StatusOr<Remainders> RemaindersOf(const NumberRule& rule) {
  Remainders out;
  for (const std::vector<Decimal>* list : {&rule.multiples_of, &rule.no_multiples_of}) {
    for (const Decimal& one : *list) out.num_digits = std::max(out.num_digits, static_cast<int>(one.fraction.size()));
  }
  const auto add = [&](const std::vector<Decimal>& from, std::vector<int64_t>* to) {
    for (const Decimal& one : from) {
      std::string digits = one.whole + one.fraction;
      digits.append(static_cast<size_t>(out.num_digits) - one.fraction.size(), '0');
      int64_t units = 0;
      if (digits.size() > 18 || !absl::SimpleAtoi(digits, &units)) return false;
      to->push_back(units);
      // With many digits behind the point, integers and rough steps still have a small modulus, because 10^n divides.
      if (units > kMaxModulus * 1'000'000) return false;
      out.modulus = std::lcm(out.modulus, units);
      if (out.modulus > kMaxModulus) return false;
    }
    return true;
  };
  if (add(rule.multiples_of, &out.multiples_of) && add(rule.no_multiples_of, &out.no_multiples_of)) return out;
  return absl::InvalidArgumentError(absl::StrCat("their common multiple, in units of the last digit, is more than ",
                                                 kMaxModulus, ", which is the largest that is supported"));
}

// Writes the digits of numbers from 0 on as a graph. A node stands for what has to be known of the digits so far.
// REQUIRES: the rule has a lower bound.
class DigitGraph {
 public:
  DigitGraph(const NumberRule& rule, const Remainders& remainders, SyntaxTree* tree)
      : rule_(rule), remainders_(remainders), tree_(*tree) {
    for (const std::optional<Decimal>* bound : {&rule.low, &rule.high}) {
      if (bound->has_value()) num_bound_ = std::max(num_bound_, static_cast<int>((*bound)->fraction.size()));
    }
  }

  absl::StatusOr<ExprId> Write() {
    nodes_.emplace(Place{}, 0);
    const size_t least = NumDigits(*rule_.low);
    const size_t most = rule_.high.has_value() ? NumDigits(*rule_.high) : std::max<size_t>(kMaxNumberDigits, least + 1);
    // A node for each length and remainder would be too many, so without a bound longer numbers share their nodes.
    const bool has_lengths = rule_.high.has_value() || remainders_.modulus == 1;
    for (size_t length = least; length <= (has_lengths ? most : least); ++length) AddLength(length);
    if (!has_lengths) AddLongerThan(least, most);
    while (!waiting_.empty()) {
      const Place place = waiting_.back();
      waiting_.pop_back();
      Expand(place);
      if (edges_.size() <= kMaxEdges) continue;
      return absl::InvalidArgumentError(absl::StrCat("its texts need more than ", kMaxEdges, " steps between digits"));
    }
    // The last node of a graph is the end, so the node that stood for it until now gets another number.
    const int end = static_cast<int>(nodes_.size());
    for (Expr::Edge& edge : edges_) {
      if (edge.to == kEnd) edge.to = end;
    }
    return tree_.Graph(end + 1, std::move(edges_));
  }

 private:
  static constexpr int kEnd = -1;
  static constexpr size_t kMaxEdges = 42'000;

  static size_t NumDigits(const Decimal& bound) { return std::max<size_t>(bound.whole.size(), 1); }

  // `length` is the number of digits before the point, or 0 where it does not matter any more.
  struct Place {
    int length = 0;
    int num_left = -1;      // Digits before the point that are still to come, at least.
    int num_more = 0;       // Digits before the point that may follow these, -1 for any number of them.
    int num_fraction = -1;  // Digits behind the point, -1 before the point.
    int max_fraction = 0;   // The most digits behind the point.
    bool is_low = false;    // All digits so far equal the lower bound.
    bool is_high = false;
    bool has_more = false;  // A digit behind the last unit of the remainder is not 0.
    int64_t remainder = 0;

    auto operator<=>(const Place&) const = default;
  };

  static std::string Padded(const std::string& whole, size_t length) {
    return std::string(length - std::min(length, whole.size()), '0') + whole;
  }
  // The digit of a bound that comes next.
  static int DigitAt(const Decimal& bound, const Place& at) {
    if (at.num_fraction < 0) {
      const std::string whole = Padded(bound.whole, static_cast<size_t>(at.length));
      return whole[static_cast<size_t>(at.length - at.num_left)] - '0';
    }
    const auto index = static_cast<size_t>(at.num_fraction);
    return index < bound.fraction.size() ? bound.fraction[index] - '0' : 0;
  }

  // Numbers with a point have so few digits that doubles tell them apart, unless a bound has more. Multiples end with
  // their last unit.
  int MaxFraction(int length) const {
    constexpr int kDigitsOfDoubles = 15;
    if (rule_.is_integer) return 0;
    const int most = std::max({kDigitsOfDoubles - length, num_bound_, 0});
    return remainders_.multiples_of.empty() ? most : std::min(most, std::max(1, remainders_.num_digits));
  }

  int NodeOf(const Place& place) {
    const auto [entry, is_new] = nodes_.try_emplace(place, static_cast<int>(nodes_.size()));
    if (is_new) waiting_.push_back(place);
    return entry->second;
  }

  // Numbers with `length` digits before the point begin at node 0.
  void AddLength(size_t length) {
    Place start{.length = static_cast<int>(length), .num_left = static_cast<int>(length)};
    start.max_fraction = MaxFraction(static_cast<int>(length));
    start.is_low = NumDigits(*rule_.low) == length;
    start.is_high = rule_.high.has_value() && NumDigits(*rule_.high) == length;
    AddDigits(0, start, length > 1 ? 1 : 0);
  }

  // Numbers with more digits before the point than `least` begin at node 0. They have at most `most` if digits and
  // remainders can be counted together, and otherwise any number.
  void AddLongerThan(size_t least, size_t most) {
    most_ = static_cast<int>(most);
    const auto num_remainders = static_cast<size_t>(remainders_.modulus);
    const size_t num_nodes = num_remainders * (most + 2 * static_cast<size_t>(1 + remainders_.num_digits));
    const int length = static_cast<int>(least) + 1;
    const int max_fraction = std::max(remainders_.multiples_of.empty() ? 3 : 1, remainders_.num_digits);
    const Place start{.num_left = length,
                      .num_more = num_nodes * 10 <= kMaxEdges ? most_ - length : -1,
                      .max_fraction = rule_.is_integer ? 0 : std::min(max_fraction, MaxFraction(length))};
    AddDigits(0, start, 1);
  }

  // Adds edges for the digits from `least` on that lead on from a place. Neighbours with the same end share an edge.
  void AddDigits(int from, const Place& at, int least) {
    const int low = std::max(least, at.is_low ? DigitAt(*rule_.low, at) : 0);
    const int high = at.is_high ? DigitAt(*rule_.high, at) : 9;
    std::map<int, std::vector<CodePointRange>> digits;
    for (int digit = low; digit <= high; ++digit) {
      const std::optional<Place> next = Next(at, digit);
      if (!next.has_value()) continue;
      const auto character = static_cast<uint32_t>('0' + digit);
      digits[NodeOf(*next)].push_back({character, character});
    }
    for (auto& [to, ranges] : digits) edges_.push_back({from, to, tree_.Set(CodePointSet(std::move(ranges)))});
  }

  std::optional<Place> Next(const Place& at, int digit) const {
    Place next = at;
    next.is_low = at.is_low && digit == DigitAt(*rule_.low, at);
    next.is_high = at.is_high && digit == DigitAt(*rule_.high, at);
    const bool is_unit = at.num_fraction < remainders_.num_digits;
    if (is_unit) {
      next.remainder = (at.remainder * 10 + digit) % remainders_.modulus;
    } else {
      next.has_more = at.has_more || digit != 0;
      if (next.has_more && !remainders_.multiples_of.empty()) return std::nullopt;
    }
    if (at.num_fraction >= 0) {
      ++next.num_fraction;
    } else if (at.num_left > 0) {
      --next.num_left;
    } else if (at.num_more > 0) {
      --next.num_more;
      next.max_fraction = std::min(at.max_fraction, MaxFraction(most_ - next.num_more));
    }
    if (next.is_low || next.is_high) return next;
    next.length = 0;
    if (next.num_fraction > 1 && remainders_.is_empty()) {  // Only the number of digits that are left matters.
      next.max_fraction -= next.num_fraction - 1;
      next.num_fraction = 1;
    }
    return next;
  }

  void Expand(const Place& at) {
    const int node = nodes_.at(at);
    if (at.num_fraction < 0 && (at.num_left > 0 || at.num_more != 0)) AddDigits(node, at, 0);
    if (at.num_fraction < 0 && at.num_left > 0) return;
    if (CanEnd(at)) edges_.push_back({node, kEnd, tree_.Empty()});
    if (at.num_fraction >= 0 && at.num_fraction < at.max_fraction) AddDigits(node, at, 0);
    if (at.num_fraction >= 0 || at.max_fraction == 0) return;
    Place point = at;
    point.num_fraction = 0;
    point.num_more = 0;
    edges_.push_back({node, NodeOf(point), tree_.Bytes(".")});
  }

  bool CanEnd(const Place& at) const {
    if (at.num_fraction == 0) return false;  // A digit has to follow the point.
    const auto num_fraction = static_cast<size_t>(std::max(at.num_fraction, 0));
    if (at.is_low && (num_fraction < rule_.low->fraction.size() || rule_.excludes_low)) return false;
    if (at.is_high && num_fraction >= rule_.high->fraction.size() && rule_.excludes_high) return false;
    int64_t remainder = at.remainder;
    for (int i = static_cast<int>(num_fraction); i < remainders_.num_digits; ++i) {
      remainder = remainder * 10 % remainders_.modulus;
    }
    return remainders_.Allow(remainder, at.has_more);
  }

  const NumberRule& rule_;
  const Remainders& remainders_;
  SyntaxTree& tree_;
  int num_bound_ = 0;  // Digits behind the point of the bounds.
  int most_ = 0;       // Digits before the point, where lengths share nodes.
  std::map<Place, int> nodes_;
  std::vector<Place> waiting_;
  std::vector<Expr::Edge> edges_;
};

// The rule for the sizes of the numbers on one side of 0.
NumberRule SizesOf(const NumberRule& rule, bool is_negative) {
  NumberRule sizes = rule;
  if (is_negative) {
    std::swap(sizes.low, sizes.high);
    std::swap(sizes.excludes_low, sizes.excludes_high);
    for (std::optional<Decimal>* bound : {&sizes.low, &sizes.high}) {
      if (bound->has_value()) *bound = (*bound)->Negated();
    }
  }
  if (!sizes.low.has_value() || sizes.low->is_negative) {
    sizes.low = Decimal();
    sizes.excludes_low = is_negative;  // No text is -0.
  } else if (is_negative && sizes.low->is_zero()) {
    sizes.excludes_low = true;
  }
  return sizes;
}

// The numbers that fit, if they are few multiples of a number.
std::optional<std::vector<std::string>> FewNumbers(const NumberRule& rule, const Remainders& remainders) {
  constexpr int64_t kFew = 1000;
  const int num_digits = remainders.num_digits;
  if (!rule.low.has_value() || !rule.high.has_value() || remainders.multiples_of.empty()) return std::nullopt;
  int64_t step = 1;
  for (const int64_t divisor : remainders.multiples_of) step = std::lcm(step, divisor);
  const auto steps = [&](const Decimal& bound) -> std::optional<int64_t> {
    const auto kept = static_cast<size_t>(num_digits);
    std::string digits = bound.whole + bound.fraction.substr(0, kept);
    digits.append(kept - std::min(kept, bound.fraction.size()), '0');
    int64_t units = 0;
    if (digits.size() > 18 || !absl::SimpleAtoi("0" + digits, &units)) return std::nullopt;
    return (bound.is_negative ? -units : units) / step;
  };
  const std::optional<int64_t> first = steps(*rule.low);
  const std::optional<int64_t> last = steps(*rule.high);
  if (!first.has_value() || !last.has_value() || *last - *first > kFew) return std::nullopt;
  std::vector<std::string> texts;
  for (int64_t i = *first - 1; i <= *last + 1; ++i) {
    const auto number = Decimal::Of(absl::StrCat(i * step, "e-", num_digits), kMaxNumberDigits);
    if (!number.has_value() || !Fits(*number, rule)) continue;
    texts.push_back(absl::StrCat(number->is_negative ? "-" : "", number->whole.empty() ? "0" : number->whole,
                                 number->fraction.empty() ? "" : ".", number->fraction));
  }
  return texts;
}

bool IsEmpty(const NumberRule& rule) {
  if (!rule.low.has_value() || !rule.high.has_value()) return false;
  return IsLess(*rule.high, *rule.low) || (*rule.high == *rule.low && (rule.excludes_low || rule.excludes_high));
}

}  // namespace

void NumberRule::AtLeast(const Decimal& bound, bool is_excluded) {
  if (low.has_value() && IsLess(bound, *low)) return;
  excludes_low = is_excluded || (low == bound && excludes_low);
  low = bound;
}

void NumberRule::AtMost(const Decimal& bound, bool is_excluded) {
  if (high.has_value() && IsLess(*high, bound)) return;
  excludes_high = is_excluded || (high == bound && excludes_high);
  high = bound;
}

bool Fits(const Decimal& number, const NumberRule& rule) {
  if (rule.is_integer && !number.is_integer()) return false;
  if (rule.low.has_value() && (IsLess(number, *rule.low) || (rule.excludes_low && number == *rule.low))) return false;
  if (rule.high.has_value() && (IsLess(*rule.high, number) || (rule.excludes_high && number == *rule.high))) {
    return false;
  }
  const auto divides = [&](const Decimal& divisor) {
    const size_t num_fraction = std::max(number.fraction.size(), divisor.fraction.size());
    const auto units = [&](const Decimal& one) {
      return one.whole + one.fraction + std::string(num_fraction - one.fraction.size(), '0');
    };
    uint64_t modulus = 0, remainder = 0;
    if (!absl::SimpleAtoi(units(divisor), &modulus) || modulus > UINT64_MAX / 16) return number.is_zero();
    for (const char digit : units(number)) remainder = (remainder * 10 + static_cast<uint64_t>(digit - '0')) % modulus;
    return remainder == 0;
  };
  return std::all_of(rule.multiples_of.begin(), rule.multiples_of.end(), divides) &&
         std::none_of(rule.no_multiples_of.begin(), rule.no_multiples_of.end(), divides);
}

absl::StatusOr<ExprId> AddNumbers(const NumberRule& rule, SyntaxTree* tree) {
  QUIRE_ASSIGN_OR_RETURN(const Remainders remainders, RemaindersOf(rule));
  std::vector<ExprId> parts;
  if (const auto few = FewNumbers(rule, remainders)) {
    for (const std::string& text : *few) parts.push_back(tree->Bytes(text));
    return tree->Choice(std::move(parts));
  }
  for (const bool is_negative : {false, true}) {
    const NumberRule sizes = SizesOf(rule, is_negative);
    if (sizes.high.has_value() && sizes.high->is_negative) continue;
    if (IsEmpty(sizes)) continue;
    QUIRE_ASSIGN_OR_RETURN(const ExprId digits, DigitGraph(sizes, remainders, tree).Write());
    parts.push_back(is_negative ? tree->Sequence({tree->Bytes("-"), digits}) : digits);
  }
  return tree->Choice(std::move(parts));
}

}  // namespace quire::grammar
