// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "grammar/long_repeat.h"
#include "grammar/schema_writer.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxArrayEdges = 40'000;
constexpr size_t kMaxContains = 4;
constexpr int kMaxCountedItems = 1000;

// Writes an array as a graph. A node stands behind some items, when some of them have counted for each `contains`.
// Beyond the last number that makes a difference, numbers are not counted.
class ArrayWriter {
 public:
  ArrayWriter(const Shape& shape, const SchemaJson& place, const SchemaContext& context)
      : shape_(shape), place_(place), context_(context), tree_(context.tree) {
    size_t last = std::max<size_t>({1, shape.prefix.size(), static_cast<size_t>(shape.min_items)});
    for (const Shape::Items& items : shape.items) last = std::max(last, items.first);
    for (const Shape::Contains& contains : shape.contains) last = std::max(last, contains.first);
    has_long_rest_ = shape.contains.empty() && shape.max_items != kUnbounded &&
                     shape.max_items > static_cast<int>(last) + kMaxCountedItems;
    last_ = shape.max_items == kUnbounded || has_long_rest_ ? static_cast<int>(last) : shape.max_items;
  }

  absl::StatusOr<ExprId> Write() {
    if (shape_.contains.size() > kMaxContains) {
      return SchemaError(context_.document, place_, shape_.contains.size(), " of the keyword \"contains\" are joined, ",
                         "at most ", kMaxContains, " are supported");
    }
    NodeOf({0, std::vector<int>(shape_.contains.size(), 0)});
    while (!waiting_.empty()) {
      const Place at = waiting_.back();
      waiting_.pop_back();
      QUIRE_RETURN_IF_ERROR(Expand(at));
      if (edges_.size() <= kMaxArrayEdges) continue;
      return SchemaError(context_.document, place_, "numbers of items and the keyword \"contains\" need more than ",
                         kMaxArrayEdges, " steps between items");
    }
    const int end = static_cast<int>(nodes_.size());
    for (Expr::Edge& edge : edges_) {
      if (edge.to == kEnd) edge.to = end;
    }
    return tree_.Sequence({tree_.Bytes("["), tree_.Graph(end + 1, std::move(edges_))});
  }

 private:
  static constexpr int kEnd = -1;

  struct Place {
    int num_items;
    std::vector<int> counts;  // [contains]

    auto operator<=>(const Place&) const = default;
  };

  int NodeOf(const Place& place) {
    const auto [entry, is_new] = nodes_.try_emplace(place, static_cast<int>(nodes_.size()));
    if (is_new) waiting_.push_back(place);
    return entry->second;
  }

  Goal ItemAt(size_t index) const {
    Goal goal;
    if (index < shape_.prefix.size()) goal = shape_.prefix[index];
    for (const Shape::Items& items : shape_.items) {
      if (items.first <= index) AddDemand(items.item, &goal);
    }
    return goal;
  }

  absl::Status Expand(const Place& at) {
    const int node = nodes_.at(at);
    bool has_enough = at.num_items >= shape_.min_items;
    for (size_t i = 0; i < at.counts.size(); ++i) has_enough &= at.counts[i] >= shape_.contains[i].min;
    const ExprId close = tree_.Sequence({context_.json.Space(), tree_.Bytes("]")});
    if (has_long_rest_ && at.num_items == last_) {
      QUIRE_ASSIGN_OR_RETURN(const ExprId value, context_.use(ItemAt(static_cast<size_t>(last_))));
      const ExprId item = tree_.Sequence({tree_.Bytes(","), context_.json.Space(), value});
      const ExprId rest = LongRepeat(item, 0, shape_.max_items - last_, &tree_);
      edges_.push_back({node, kEnd, tree_.Sequence({rest, close})});
      return absl::OkStatus();
    }
    if (has_enough) edges_.push_back({node, kEnd, close});
    if (shape_.max_items != kUnbounded && at.num_items >= shape_.max_items) return absl::OkStatus();
    Place next{std::min(at.num_items + 1, last_), at.counts};
    return AddItems(at, node, 0, ItemAt(static_cast<size_t>(at.num_items)), std::move(next));
  }

  // Adds the items that count for the keywords `contains` from `index` on, and those that do not.
  absl::Status AddItems(const Place& at, int node, size_t index, const Goal& goal, Place next) {
    if (index == shape_.contains.size()) {
      QUIRE_ASSIGN_OR_RETURN(const ExprId value, context_.use(goal));
      const ExprId space = context_.json.Space();
      const ExprId before = at.num_items == 0 ? space : tree_.Sequence({tree_.Bytes(","), space});
      edges_.push_back({node, NodeOf(next), tree_.Sequence({before, value})});
      return absl::OkStatus();
    }
    const Shape::Contains& contains = shape_.contains[index];
    const int count = at.counts[index];
    const bool is_enough = contains.max == kUnbounded && count >= contains.min;
    if (is_enough || at.num_items < static_cast<int>(contains.first)) return AddItems(at, node, index + 1, goal, next);
    Goal other = goal;
    AddDemand({contains.item.schema, !contains.item.is_negated}, &other);
    QUIRE_RETURN_IF_ERROR(AddItems(at, node, index + 1, other, next));
    if (count == contains.max) return absl::OkStatus();
    Goal counted = goal;
    AddDemand(contains.item, &counted);
    ++next.counts[index];
    return AddItems(at, node, index + 1, counted, std::move(next));
  }

  const Shape& shape_;
  const SchemaJson& place_;
  const SchemaContext& context_;
  SyntaxTree& tree_;
  int last_;
  bool has_long_rest_ = false;  // All items behind the last one that is counted are alike.
  std::map<Place, int> nodes_;
  std::vector<Place> waiting_;
  std::vector<Expr::Edge> edges_;
};

}  // namespace

absl::StatusOr<ExprId> AddArray(const Shape& shape, const SchemaJson& place, const SchemaContext& context) {
  const bool may_repeat = shape.max_items == kUnbounded || shape.max_items > 1;
  if (shape.unique != nullptr && may_repeat) return AddUniqueArray(shape, context);
  return ArrayWriter(shape, place, context).Write();
}

}  // namespace quire::grammar
