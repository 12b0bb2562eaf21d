// SPDX-License-Identifier: Apache-2.0

// Arrays whose items are all different.

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "grammar/schema_facets.h"
#include "grammar/schema_values.h"
#include "grammar/schema_writer.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxAnyOrder = 8;   // So many values may come in any order.
constexpr size_t kMaxListed = 1000;  // Each value is compared with all others.
constexpr int kMaxUniqueNodes = 20'000;

// Appends the integers of a rule, and returns false if they are too many or the rule has others.
bool AppendIntegers(const NumberRule& rule, std::vector<SchemaJson>* values) {
  if (!rule.is_integer || !rule.low.has_value() || !rule.high.has_value()) return false;
  if (rule.low->whole.size() > 15 || rule.high->whole.size() > 15) return false;
  const auto whole = [](const Decimal& bound) {
    const int64_t size = bound.whole.empty() ? 0 : std::stoll(bound.whole);
    return bound.is_negative ? -size : size;
  };
  const int64_t first = whole(*rule.low) - 1, last = whole(*rule.high) + 1;
  if (last - first > static_cast<int64_t>(kMaxListed)) return false;
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

// Kinds of items that no value has in common, in their order. An array has at most one item of each.
class ItemKinds {
 public:
  ItemKinds(const SchemaJson& place, const SchemaContext& context)
      : place_(place), context_(context), tree_(context.tree) {}

  // Returns false if values of some shape have no such kinds.
  absl::StatusOr<bool> Add(const Goal& goal) {
    for (const ValueType type : kValueTypes) {
      QUIRE_ASSIGN_OR_RETURN(std::vector<Shape> shapes, context_.expand(type, goal));
      std::erase_if(shapes, [](const Shape& shape) { return !IsWritten(shape); });
      if (shapes.empty()) continue;
      // Several shapes could have values in common.
      if (shapes.size() > 1 || shapes[0].constants.has_value()) return false;
      if (type == ValueType::kString) {
        QUIRE_RETURN_IF_ERROR(AddStrings(shapes[0], goal));
      } else if (type == ValueType::kNull || type == ValueType::kBoolean) {
        if (type == ValueType::kNull) kinds_.push_back(tree_.Bytes("null"));
        if (type == ValueType::kBoolean) kinds_.insert(kinds_.end(), {tree_.Bytes("false"), tree_.Bytes("true")});
      } else {
        return false;
      }
    }
    return true;
  }

  const std::vector<ExprId>& kinds() const { return kinds_; }

 private:
  // Strings that begin with the same character, or with characters that are near each other.
  absl::Status AddStrings(const Shape& shape, const Goal& goal) {
    QUIRE_ASSIGN_OR_RETURN(const CharacterDfa strings, StringsOf(goal, place_, context_));
    std::vector<CodePointRange> firsts;
    for (uint32_t c = 0; c < 0x80; ++c) firsts.push_back({c, c});
    for (uint32_t c = 0x80; c < 0x2000; c += 0x40) firsts.push_back({c, c + 0x3F});
    for (uint32_t c = 0x2000; c < 0x10000; c += 0x1000) firsts.push_back({c, c + 0xFFF});
    firsts.push_back({0x10000, kMaxCodePoint});
    RuleId rest = -1;
    if (!shape.is_constrained) {
      rest = tree_.AddRule("rest of a string", /*may_be_inlined=*/false);
      const ExprId more = Characters(CodePointSet::All(), RegexText::kJsonString, &tree_);
      tree_.SetBody(rest, tree_.Sequence({tree_.Repeat(more, 0, kUnbounded), tree_.Bytes("\"")}));
    }
    if (strings.Matches("")) kinds_.push_back(tree_.Bytes("\"\""));
    for (const CodePointRange& first : firsts) {
      const CodePointSet set({first});
      if (rest >= 0) {
        const ExprId character = Characters(set, RegexText::kJsonString, &tree_);
        kinds_.push_back(tree_.Sequence({tree_.Bytes("\""), character, tree_.Use(rest)}));
        continue;
      }
      SyntaxTree plain;
      const ExprId begin =
          plain.Sequence({plain.Set(set), plain.Repeat(plain.Set(CodePointSet::All()), 0, kUnbounded)});
      QUIRE_ASSIGN_OR_RETURN(const CharacterDfa beginning, CharacterDfa::Of(plain, begin, tree_.character_steps()));
      QUIRE_ASSIGN_OR_RETURN(const CharacterDfa both, strings.Intersection(beginning, tree_.character_steps()));
      const ExprId body = both.AddTo(RegexText::kJsonString, &tree_);
      if (!both.empty()) kinds_.push_back(tree_.Sequence({tree_.Bytes("\""), body, tree_.Bytes("\"")}));
    }
    return absl::OkStatus();
  }

  const SchemaJson& place_;
  const SchemaContext& context_;
  SyntaxTree& tree_;
  std::vector<ExprId> kinds_;
};

// Writes the array as a graph. Behind few kinds of items a node knows which of them have come. More kinds come in their
// order.
class UniqueWriter {
 public:
  UniqueWriter(const Shape& shape, std::vector<ExprId> kinds, const SchemaContext& context)
      : shape_(shape), kinds_(std::move(kinds)), context_(context), tree_(context.tree) {}

  ExprId InAnyOrder() {
    const int end = 1 << kinds_.size();
    for (int taken = 0; taken < end; ++taken) {
      const int count = std::popcount(static_cast<unsigned>(taken));
      AddEnd(taken, count, end);
      for (size_t i = 0; i < kinds_.size() && MayAdd(count); ++i) {
        if ((taken >> i & 1) == 0) AddItem(taken, taken | 1 << i, count, kinds_[i]);
      }
    }
    return Write(end);
  }

  absl::StatusOr<ExprId> InTheirOrder(const SchemaJson& place) {
    const int last = std::max({1, shape_.min_items, shape_.max_items});
    const int num_kinds = static_cast<int>(kinds_.size());
    const int end = (num_kinds + 1) * (last + 1);
    if (end > kMaxUniqueNodes) {
      return KeywordError(context_.document, place, "uniqueItems", ", and ", num_kinds,
                          " values and numbers of items up ", "to ", last, " need ", end, " nodes, at most ",
                          kMaxUniqueNodes, " are supported");
    }
    const auto node = [&](int value, int count) { return value * (last + 1) + count; };
    for (int i = 0; i <= num_kinds; ++i) {
      for (int count = 0; count <= last; ++count) {
        if (i == num_kinds) {
          AddEnd(node(i, count), count, end);
          continue;
        }
        edges_.push_back({node(i, count), node(i + 1, count), tree_.Empty()});
        if (MayAdd(count)) {
          AddItem(node(i, count), node(i + 1, std::min(count + 1, last)), count, kinds_[static_cast<size_t>(i)]);
        }
      }
    }
    return Write(end);
  }

 private:
  bool MayAdd(int count) const { return shape_.max_items == kUnbounded || count < shape_.max_items; }
  void AddEnd(int node, int count, int end) {
    if (count < shape_.min_items) return;
    edges_.push_back({node, end, tree_.Sequence({context_.json.Space(), tree_.Bytes("]")})});
  }
  void AddItem(int from, int to, int count, ExprId item) {
    const ExprId space = context_.json.Space();
    const ExprId before = count == 0 ? space : tree_.Sequence({tree_.Bytes(","), space});
    edges_.push_back({from, to, tree_.Sequence({before, item})});
  }
  ExprId Write(int end) { return tree_.Sequence({tree_.Bytes("["), tree_.Graph(end + 1, std::move(edges_))}); }

  const Shape& shape_;
  const std::vector<ExprId> kinds_;
  const SchemaContext& context_;
  SyntaxTree& tree_;
  std::vector<Expr::Edge> edges_;
};

}  // namespace

absl::StatusOr<ExprId> AddUniqueArray(const Shape& shape, const SchemaContext& context) {
  const bool has_one_item_schema =
      shape.prefix.empty() && shape.contains.empty() &&
      std::all_of(shape.items.begin(), shape.items.end(), [](const Shape::Items& items) { return items.first == 0; });
  const auto refuse = [&] {
    return KeywordError(context.document, *shape.unique, "uniqueItems",
                        ", which is supported where all items are of one schema with constants, booleans, null, or ",
                        "one schema for strings, without \"contains\"");
  };
  Goal item;
  for (const Shape::Items& items : shape.items) AddDemand(items.item, &item);
  if (!has_one_item_schema || item.empty()) return refuse();
  QUIRE_ASSIGN_OR_RETURN(const std::optional<std::vector<SchemaJson>> values, FewValues(item, *shape.unique, context));
  std::vector<ExprId> kinds;
  if (values.has_value()) {
    for (const SchemaJson& value : *values) kinds.push_back(context.tree.Bytes(value.dump()));
  } else {
    ItemKinds more(*shape.unique, context);
    QUIRE_ASSIGN_OR_RETURN(const bool has_kinds, more.Add(item));
    if (!has_kinds) return refuse();
    kinds = more.kinds();
  }
  const bool is_any_order = kinds.size() <= kMaxAnyOrder;
  UniqueWriter writer(shape, std::move(kinds), context);
  return is_any_order ? writer.InAnyOrder() : writer.InTheirOrder(*shape.unique);
}

}  // namespace quire::grammar
