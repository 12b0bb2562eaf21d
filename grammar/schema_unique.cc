// SPDX-License-Identifier: Apache-2.0

// Arrays whose items are all different.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/decimal.h"
#include "grammar/number_text.h"
#include "grammar/schema_facets.h"
#include "grammar/schema_values.h"
#include "grammar/schema_writer.h"
#include "grammar/string_kinds.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxAnyOrder = 8;   // Largest number of values in any order.
constexpr size_t kMaxListed = 1000;  // Each value is compared with all others.
constexpr size_t kMaxIntegers = 270;
constexpr int64_t kMaxUniqueSteps = 700'000;  // Of the compilation.

// Appends the integers of a rule, and returns false if they are too many or the rule has others.
bool AppendIntegers(const NumberRule& rule, std::vector<SchemaJson>* values) {
  if (!rule.is_integer || !rule.low.has_value() || !rule.high.has_value()) return false;
  if (rule.low->whole.size() > 15 || rule.high->whole.size() > 15) return false;
  const auto whole = [](const Decimal& bound) {
    const int64_t size = bound.whole.empty() ? 0 : std::stoll(bound.whole);
    return bound.is_negative ? -size : size;
  };
  const int64_t first = whole(*rule.low) - 1, last = whole(*rule.high) + 1;
  if (last - first > static_cast<int64_t>(kMaxIntegers)) return false;
  for (int64_t i = first; i <= last; ++i) {
    if (Fits(*Decimal::Of(std::to_string(i), /*max_digits=*/20), rule)) values->push_back(i);
  }
  return true;
}

// The values that meet a goal, each once, if they are few. `place` is the schema with uniqueItems.
absl::StatusOr<std::optional<std::vector<SchemaJson>>> FewValues(const Goal& goal, const SchemaJson& place,
                                                                 const SchemaContext& context) {
  std::vector<SchemaJson> values;
  for (const ValueType type : kValueTypes) {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, context.expand(type, goal));
    for (const Shape& shape : shapes) {
      if (!IsWritten(shape)) continue;
      if (shape.constants.has_value()) {
        if (values.size() + shape.constants->size() > kMaxListed) {
          return KeywordError(context.document, place, "uniqueItems", ", and ", values.size() + shape.constants->size(),
                              " values are listed for the items, at most ", kMaxListed, " are supported");
        }
        for (const SchemaJson* value : *shape.constants) values.push_back(*value);
      } else if (type == ValueType::kNull) {
        values.push_back(nullptr);
      } else if (type == ValueType::kBoolean) {
        values.insert(values.end(), {true, false});
      } else if (type != ValueType::kNumber || !AppendIntegers(shape.number, &values)) {
        return std::optional<std::vector<SchemaJson>>();
      }
    }
  }
  std::vector<SchemaJson> different;
  for (SchemaJson& value : values) {
    QUIRE_ASSIGN_OR_RETURN(const bool fits, MeetsGoal(value, goal, context.document, &context.texts));
    const bool is_known = std::any_of(different.begin(), different.end(),
                                      [&](const SchemaJson& other) { return AreEqual(value, other); });
    if (fits && !is_known) different.push_back(std::move(value));
  }
  return std::optional(std::move(different));
}

// Numbers that begin with one of some digits, or with the same digits, and have these zeros or other digits behind
// them.
struct NumberKind {
  bool is_negative;
  int first;  // Leading digits.
  int last;
  int num_more;

  Decimal Bound(int leading) const {
    const std::string digits = absl::StrCat(leading, std::string(static_cast<size_t>(num_more), '0'));
    const Decimal bound = *Decimal::Of(digits, kMaxNumberDigits + 1);
    return is_negative ? bound.Negated() : bound;
  }
};

// Appends kinds with `size` leading numbers each.
void AppendKinds(bool is_negative, int first, int last, int size, int num_more, std::vector<NumberKind>* kinds) {
  for (int i = first; i <= last; i += size) kinds->push_back({is_negative, i, i + size - 1, num_more});
}

// Kinds of integers in their order. Many are where numbers are usual.
std::vector<NumberKind> IntegerKinds() {
  std::vector<NumberKind> kinds;
  for (int more = kMaxNumberDigits; --more > 0;) AppendKinds(/*is_negative=*/true, 1, 9, 9, more, &kinds);
  for (int i = 9; i > 0; --i) kinds.push_back({/*is_negative=*/true, i, i, 0});
  AppendKinds(/*is_negative=*/false, 0, 99, 1, 0, &kinds);
  AppendKinds(/*is_negative=*/false, 10, 99, 1, 1, &kinds);
  for (int more = 3; more < kMaxNumberDigits; ++more) {
    AppendKinds(/*is_negative=*/false, 1, 9, more < 5 ? 1 : 9, more, &kinds);
  }
  return kinds;
}

// Small numbers are alone. Larger ones are grouped by their number of digits, or by this and the first digit.
KindGroups GroupsOf(const NumberKind& kind) {
  if (kind.is_negative) return {absl::StrCat("-", kind.num_more), "-"};
  const std::string digits = std::to_string(kind.first);
  const size_t num_digits = digits.size() + static_cast<size_t>(kind.num_more);
  const std::string first = absl::StrCat(num_digits, "/", digits.substr(0, 1));
  const std::string alone = absl::StrCat(num_digits, "/", digits);
  const bool is_small = num_digits <= 2 && kind.first <= 20;
  return {is_small ? alone : first, num_digits == 1 ? alone : num_digits == 2 ? first : std::to_string(num_digits)};
}

struct FirstNumber {
  Decimal number;
  KindGroups groups;
};

// The numbers at which kinds of numbers begin, in their order.
std::vector<FirstNumber> FirstNumbers() {
  const auto decimal = [](const std::string& text) { return *Decimal::Of(text, kMaxNumberDigits); };
  const auto zeros = [](int num) { return std::string(static_cast<size_t>(num), '0'); };
  std::vector<FirstNumber> numbers;
  for (int more = kMaxNumberDigits; --more >= 0;) {
    numbers.push_back({decimal(absl::StrCat("1", zeros(more))).Negated(), {more == 0 ? "-0" : "-1", "-"}});
  }
  for (int i = 0; i < 100; i += 5) {
    numbers.push_back({decimal(absl::StrCat("0.", i / 10, i % 10)), {absl::StrCat("0.", i / 10), "0"}});
  }
  for (int more = 0; more < kMaxNumberDigits; ++more) {
    for (int i = 1; i <= (more < 3 ? 9 : 1); ++i) {
      const std::string power = absl::StrCat(more + 1, "/");
      numbers.push_back({decimal(absl::StrCat(i, zeros(more))),
                         {more < 2 ? absl::StrCat(power, i) : power, more == 0 ? absl::StrCat(power, i) : power}});
    }
  }
  return numbers;
}

// Kinds of items that no value has in common, in their order. An array has at most one item of each.
struct ItemKinds {
  std::string opening;  // The bytes with which all begin.
  std::vector<ExprId> rests;
  std::vector<KindGroups> groups;  // [kinds], empty if each kind is one value.
  bool are_mixed = false;          // Strings and other values.
};

ItemKinds KindsOfValues(const std::vector<SchemaJson>& values, SyntaxTree* tree) {
  const bool are_texts = std::all_of(values.begin(), values.end(), [](const auto& value) { return value.is_string(); });
  ItemKinds kinds{are_texts && !values.empty() ? "\"" : "", {}, {}};
  for (const SchemaJson& value : values) kinds.rests.push_back(tree->Bytes(value.dump().substr(kinds.opening.size())));
  return kinds;
}

// Finds kinds of the values that meet a goal. There are none for arrays and objects.
class KindFinder {
 public:
  KindFinder(const SchemaJson& place, const SchemaContext& context)
      : place_(place), context_(context), tree_(context.tree) {}

  // Returns nothing if values have no such kinds. Strings come first.
  absl::StatusOr<std::optional<ItemKinds>> Find(const Goal& goal) {
    bool has_strings_only = true;
    for (const ValueType type : {ValueType::kString, ValueType::kNumber, ValueType::kBoolean, ValueType::kNull}) {
      QUIRE_ASSIGN_OR_RETURN(std::vector<Shape> shapes, context_.expand(type, goal));
      std::erase_if(shapes, [](const Shape& shape) { return !IsWritten(shape); });
      if (shapes.empty()) continue;
      // Several shapes could have values in common.
      if (shapes.size() > 1 || shapes[0].constants.has_value()) return std::optional<ItemKinds>();
      has_strings_only &= type == ValueType::kString;
      if (type == ValueType::kString) QUIRE_RETURN_IF_ERROR(AddStrings(goal));
      if (type == ValueType::kNumber) QUIRE_RETURN_IF_ERROR(AddNumbers(shapes[0]));
      if (type == ValueType::kBoolean) {
        for (const char* text : {"false", "true"}) Add(tree_.Bytes(text), {text, text});
      }
      if (type == ValueType::kNull) Add(tree_.Bytes("null"), {"null", "null"});
    }
    if (kinds_.rests.empty()) return std::optional<ItemKinds>();
    if (has_strings_only) {
      kinds_.opening = std::string(1, '"');
    } else {
      kinds_.are_mixed = num_strings_ > 0;
      for (size_t i = 0; i < num_strings_; ++i) {
        kinds_.rests[i] = tree_.Sequence({tree_.Bytes("\""), kinds_.rests[i]});
      }
    }
    return std::optional(std::move(kinds_));
  }

 private:
  void Add(ExprId rest, KindGroups groups) {
    kinds_.rests.push_back(rest);
    kinds_.groups.push_back(std::move(groups));
  }

  // Strings that begin with the same character, or with characters that are near each other.
  absl::Status AddStrings(const Goal& goal) {
    QUIRE_ASSIGN_OR_RETURN(const CharacterDfa strings, StringsOf(goal, place_, context_));
    if (strings.Matches("")) Add(tree_.Bytes("\""), {"empty", "empty"});
    const StringKinds kinds(strings, tree_.Bytes("\""), &tree_);
    for (const FirstCharacter& first : FirstCharacters()) {
      if (const std::optional<ExprId> kind = kinds.BeginningWith(first.characters)) Add(*kind, first.groups);
    }
    num_strings_ = kinds_.rests.size();
    return absl::OkStatus();
  }

  absl::Status AddNumbers(const Shape& shape) {
    if (shape.number.is_integer) {
      for (const NumberKind& kind : IntegerKinds()) QUIRE_RETURN_IF_ERROR(AddIntegers(kind, shape));
      return absl::OkStatus();
    }
    const std::vector<FirstNumber> firsts = FirstNumbers();
    for (size_t i = 0; i <= firsts.size(); ++i) {
      Shape part = shape;
      if (i > 0) part.number.AtLeast(firsts[i - 1].number, /*is_excluded=*/false);
      if (i < firsts.size()) part.number.AtMost(firsts[i].number, /*is_excluded=*/true);
      QUIRE_RETURN_IF_ERROR(AddPart(part, i == 0 ? KindGroups{"-1", "-"} : firsts[i - 1].groups));
    }
    return absl::OkStatus();
  }

  // All integers of a kind are written as its digits, which needs fewer states than bounds.
  absl::Status AddIntegers(const NumberKind& kind, const Shape& shape) {
    Decimal low = kind.Bound(kind.first), high = kind.Bound(kind.last + 1);
    if (kind.is_negative) std::swap(low, high);
    Shape part = shape;
    part.number.AtLeast(low, /*is_excluded=*/kind.is_negative);
    part.number.AtMost(high, /*is_excluded=*/!kind.is_negative);
    const bool has_all = part.number.low == low && part.number.high == high && part.number.multiples_of.empty() &&
                         part.number.no_multiples_of.empty() && part.excluded.empty();
    if (!has_all || part.number.excludes_low != kind.is_negative || part.number.excludes_high == kind.is_negative) {
      return AddPart(part, GroupsOf(kind));
    }
    const auto digits = [&](int first, int last) {
      return tree_.Set(CodePointSet({{static_cast<uint32_t>('0' + first), static_cast<uint32_t>('0' + last)}}));
    };
    const ExprId begin =
        kind.first == kind.last ? tree_.Bytes(std::to_string(kind.first)) : digits(kind.first, kind.last);
    const ExprId more = tree_.Repeat(digits(0, 9), kind.num_more, kind.num_more);
    Add(tree_.Sequence({tree_.Bytes(kind.is_negative ? "-" : ""), begin, more}), GroupsOf(kind));
    return absl::OkStatus();
  }

  absl::Status AddPart(const Shape& part, const KindGroups& groups) {
    const NumberRule& rule = part.number;
    const bool has_bounds = rule.low.has_value() && rule.high.has_value();
    const bool is_empty = has_bounds && (IsLess(*rule.high, *rule.low) ||
                                         (*rule.low == *rule.high && (rule.excludes_low || rule.excludes_high)));
    if (is_empty) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(const ExprId numbers, AddNumber(part, place_, context_));
    Add(numbers, groups);
    return absl::OkStatus();
  }

  const SchemaJson& place_;
  const SchemaContext& context_;
  SyntaxTree& tree_;
  ItemKinds kinds_;
  size_t num_strings_ = 0;
};

// Writes the array as a graph. Behind few kinds of items a node knows which of them have come. More kinds come in their
// order.
class UniqueWriter {
 public:
  UniqueWriter(const Shape& shape, ItemKinds kinds, const SchemaContext& context)
      : shape_(shape), kinds_(std::move(kinds)), context_(context), tree_(context.tree) {}

  // `positions` says for each position of an item which kinds may come there, as bits. The last entry is for all
  // further positions.
  ExprId InAnyOrder(const std::vector<uint32_t>& positions) {
    const int end = 1 << kinds_.rests.size();
    for (int taken = 0; taken < end; ++taken) {
      const int count = std::popcount(static_cast<unsigned>(taken));
      const uint32_t may_come = positions[std::min(static_cast<size_t>(count), positions.size() - 1)];
      AddEnd(taken, count, end);
      for (size_t i = 0; i < kinds_.rests.size() && MayAdd(count); ++i) {
        if ((taken >> i & 1) != 0 || (may_come >> i & 1) == 0) continue;
        edges_.push_back({taken, taken | 1 << i, tree_.Sequence({Before(count), kinds_.rests[i]})});
      }
    }
    return Write(end);
  }

  // Node (i, n) stands behind n items, and kinds from i on may follow. From there, node Next(i, n) stands before an
  // item of one of these kinds, so that what all of them begin with is read once.
  absl::StatusOr<ExprId> InTheirOrder(const SchemaJson& place) {
    if (!kinds_.groups.empty()) FewerKinds();
    const auto num_kinds = static_cast<int>(kinds_.rests.size());
    const int last = LastCount();
    if (!kinds_.groups.empty() && num_kinds < shape_.min_items) {
      return KeywordError(context_.document, place, "uniqueItems", ", and at least ", shape_.min_items,
                          " different items are asked for, at most ", num_kinds, " are supported for such items");
    }
    if (NumSteps() > kMaxUniqueSteps * (kinds_.groups.empty() ? 8 : 1)) {
      return KeywordError(context_.document, place, "uniqueItems", ", and ", num_kinds,
                          " values or kinds of values, with numbers of items up to ", last, ", need ", NumSteps(),
                          " steps, at most ", kMaxUniqueSteps * (kinds_.groups.empty() ? 8 : 1), " are supported");
    }
    const auto node = [&](int kind, int count) { return 2 * (kind * (last + 1) + count); };
    const auto next = [&](int kind, int count) { return node(kind, count) + 1; };
    const int end = node(num_kinds + 1, 0);
    for (int i = 0; i <= num_kinds; ++i) {
      for (int count = 0; count <= std::min(i, last); ++count) {
        AddEnd(node(i, count), count, end);
        if (i == num_kinds || !MayAdd(count)) continue;
        edges_.push_back({node(i, count), next(i, count), Before(count)});
        edges_.push_back(
            {next(i, count), node(i + 1, std::min(count + 1, last)), kinds_.rests[static_cast<size_t>(i)]});
        if (i + 1 < num_kinds) edges_.push_back({next(i, count), next(i + 1, count), tree_.Empty()});
      }
    }
    return Write(end);
  }

 private:
  bool HasFew() const {
    return shape_.max_items == kUnbounded || shape_.max_items >= static_cast<int>(kinds_.rests.size());
  }
  // Beyond this number, items are not counted.
  int LastCount() const { return std::max({1, shape_.min_items, HasFew() ? 0 : shape_.max_items}); }
  // About what the compilation needs. Each state costs the number of kinds, and some bytes of long characters.
  // Behind the same digits, kinds of numbers need states of their own for each count.
  int64_t NumSteps() const {
    const auto num_kinds = static_cast<int64_t>(kinds_.rests.size());
    const int last = LastCount();
    const int of_counts = last == 1 ? 1 : (last + 1) * (kinds_.opening.empty() ? 3 : 1);
    const int factor = of_counts * (kinds_.are_mixed ? 2 : 1);
    return factor * (9 * num_kinds + 240) * num_kinds;
  }
  // Joins kinds that are too many. Without more kinds than items, items need not be counted.
  void FewerKinds() {
    for (size_t level = 0; level < KindGroups().size() && NumSteps() > kMaxUniqueSteps; ++level) {
      kinds_.rests = JoinGroups(kinds_.rests, level, &kinds_.groups, &tree_);
    }
    if (HasFew() || NumSteps() <= kMaxUniqueSteps) return;
    std::vector<ExprId>& rests = kinds_.rests;
    for (size_t end = rests.size(); static_cast<int>(rests.size()) > shape_.max_items; end -= 2) {
      if (end < 2) end = rests.size();
      rests[end - 2] = tree_.Choice({rests[end - 2], rests[end - 1]});
      rests.erase(rests.begin() + static_cast<std::ptrdiff_t>(end) - 1);
    }
  }

  bool MayAdd(int count) const { return shape_.max_items == kUnbounded || count < shape_.max_items; }
  void AddEnd(int node, int count, int end) {
    if (count < shape_.min_items) return;
    edges_.push_back({node, end, tree_.Sequence({context_.json.Space(), tree_.Bytes("]")})});
  }
  ExprId Before(int count) {
    return tree_.Sequence({tree_.Bytes(count == 0 ? "" : ","), context_.json.Space(), tree_.Bytes(kinds_.opening)});
  }
  ExprId Write(int end) { return tree_.Sequence({tree_.Bytes("["), tree_.Graph(end + 1, std::move(edges_))}); }

  const Shape& shape_;
  ItemKinds kinds_;
  const SchemaContext& context_;
  SyntaxTree& tree_;
  std::vector<Expr::Edge> edges_;
};

Goal ItemAt(const Shape& shape, size_t index) {
  Goal goal;
  if (index < shape.prefix.size()) goal = shape.prefix[index];
  for (const Shape::Items& items : shape.items) {
    if (items.first <= index) AddDemand(items.item, &goal);
  }
  return goal;
}

// Writes an array with items of several schemas. Those behind the prefix come only if they are few as well.
absl::StatusOr<std::optional<ExprId>> AddUniquePrefix(const Shape& shape, const SchemaContext& context) {
  size_t num_positions = shape.prefix.size();
  for (const Shape::Items& items : shape.items) num_positions = std::max(num_positions, items.first);
  std::vector<SchemaJson> kinds;
  std::vector<uint32_t> positions;
  for (size_t i = 0; i <= num_positions && i <= kMaxAnyOrder; ++i) {
    QUIRE_ASSIGN_OR_RETURN(const auto values, FewValues(ItemAt(shape, i), *shape.unique, context));
    const bool is_possible =
        i < num_positions ? values.has_value() : values.has_value() || shape.min_items <= static_cast<int>(i);
    if (!is_possible) return std::optional<ExprId>();
    positions.push_back(0);
    for (size_t k = 0; values.has_value() && k < values->size(); ++k) {
      const auto known = std::find_if(kinds.begin(), kinds.end(),
                                      [&](const SchemaJson& kind) { return AreEqual(kind, (*values)[k]); });
      positions.back() |= 1u << (known - kinds.begin());
      if (known == kinds.end()) kinds.push_back((*values)[k]);
      if (kinds.size() > kMaxAnyOrder) return std::optional<ExprId>();
    }
  }
  return std::optional(UniqueWriter(shape, KindsOfValues(kinds, &context.tree), context).InAnyOrder(positions));
}

}  // namespace

absl::StatusOr<ExprId> AddUniqueArray(const Shape& shape, const SchemaContext& context) {
  const auto refuse = [&] {
    return KeywordError(context.document, *shape.unique, "uniqueItems",
                        ", which is supported for items of one schema that are strings, numbers, booleans, null or ",
                        "constants, for a prefix with up to ", kMaxAnyOrder, " values in all, and without ",
                        "\"contains\"; leave out \"uniqueItems\" or give the items an \"enum\"");
  };
  if (!shape.contains.empty()) return refuse();
  const bool has_one_item_schema =
      shape.prefix.empty() &&
      std::all_of(shape.items.begin(), shape.items.end(), [](const Shape::Items& items) { return items.first == 0; });
  if (!has_one_item_schema) {
    QUIRE_ASSIGN_OR_RETURN(const std::optional<ExprId> array, AddUniquePrefix(shape, context));
    return array.has_value() ? absl::StatusOr<ExprId>(*array) : refuse();
  }
  const Goal item = ItemAt(shape, 0);
  QUIRE_ASSIGN_OR_RETURN(const std::optional<std::vector<SchemaJson>> values, FewValues(item, *shape.unique, context));
  std::optional<ItemKinds> kinds;
  if (values.has_value()) {
    kinds = KindsOfValues(*values, &context.tree);
  } else {
    QUIRE_ASSIGN_OR_RETURN(kinds, KindFinder(*shape.unique, context).Find(item));
    if (!kinds.has_value()) return refuse();
  }
  const bool is_any_order = kinds->rests.size() <= kMaxAnyOrder;
  UniqueWriter writer(shape, *std::move(kinds), context);
  return is_any_order ? absl::StatusOr<ExprId>(writer.InAnyOrder({0xFF})) : writer.InTheirOrder(*shape.unique);
}

}  // namespace quire::grammar
