// SPDX-License-Identifier: Apache-2.0

#include "grammar/shared_parts.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace quire::grammar {
namespace {

// About the number of states from which an expression is large, before it is compiled.
constexpr int64_t kLargeSize = 256;
constexpr int64_t kLargestSize = int64_t{1} << 40;

// Finds equal expressions. Parts have smaller numbers than what contains them.
class PartFinder {
 public:
  explicit PartFinder(const SyntaxTree& tree) : tree_(tree) {}

  // Returns the places of each large expression that occurs at several ones.
  std::vector<std::vector<ExprId>> Run() {
    FindUsed();
    for (ExprId id = 0; id < tree_.num_exprs(); ++id) Visit(id);
    for (RuleId rule = 0; rule < tree_.num_rules(); ++rule) Use(tree_.rule(rule).body);
    std::vector<std::vector<ExprId>> found;
    for (ExprId id = 0; id < tree_.num_exprs(); ++id) {
      const auto at = static_cast<size_t>(id);
      if (first_[at] == id && num_uses_[at] > 1 && sizes_[at] >= kLargeSize &&
          tree_.expr(id).kind != Expr::Kind::kSet) {
        found.push_back(places_[at]);
      }
    }
    return found;
  }

 private:
  // Finds the expressions that rules have. Front ends also leave others.
  void FindUsed() {
    is_used_.resize(static_cast<size_t>(tree_.num_exprs()));
    for (RuleId rule = 0; rule < tree_.num_rules(); ++rule) is_used_[static_cast<size_t>(tree_.rule(rule).body)] = true;
    for (ExprId id = tree_.num_exprs(); id-- > 0;) {
      if (!is_used_[static_cast<size_t>(id)]) continue;
      for (const ExprId part : tree_.expr(id).parts) is_used_[static_cast<size_t>(part)] = true;
      for (const Expr::Edge& edge : tree_.expr(id).edges) is_used_[static_cast<size_t>(edge.expr)] = true;
    }
  }

  void Visit(ExprId id) {
    if (!is_used_[static_cast<size_t>(id)]) {
      first_.push_back(-1);
      num_uses_.push_back(0);
      sizes_.push_back(0);
      places_.emplace_back();
      return;
    }
    const auto [entry, is_new] = index_.try_emplace(KeyOf(tree_.expr(id)), id);
    first_.push_back(entry->second);
    num_uses_.push_back(0);
    sizes_.push_back(is_new ? SizeOf(tree_.expr(id)) : 0);
    places_.emplace_back();
    places_[static_cast<size_t>(entry->second)].push_back(id);
    if (!is_new) return;
    for (const ExprId part : tree_.expr(id).parts) Use(part);
    for (const Expr::Edge& edge : tree_.expr(id).edges) Use(edge.expr);
  }

  ExprId First(ExprId id) const { return first_[static_cast<size_t>(id)]; }
  void Use(ExprId id) { ++num_uses_[static_cast<size_t>(First(id))]; }
  int64_t SizeAt(ExprId id) const { return sizes_[static_cast<size_t>(First(id))]; }

  // Equal expressions have equal keys, and others have not.
  std::string KeyOf(const Expr& expr) const {
    std::string key = absl::StrCat(static_cast<int>(expr.kind), ",", expr.min, ",", expr.max, ",", expr.num_nodes, ",",
                                   expr.rule, ",", expr.bytes.size(), ",", expr.bytes);
    for (const CodePointRange& range : expr.set.ranges()) absl::StrAppend(&key, "[", range.first, "-", range.last);
    for (const ExprId part : expr.parts) absl::StrAppend(&key, "/", First(part));
    for (const Expr::Edge& edge : expr.edges) {
      absl::StrAppend(&key, ">", edge.from, ",", edge.to, ",", First(edge.expr));
    }
    return key;
  }

  int64_t SizeOf(const Expr& expr) const {
    int64_t size = 1 + static_cast<int64_t>(expr.bytes.size()) + static_cast<int64_t>(expr.set.ranges().size());
    for (const ExprId part : expr.parts) size += SizeAt(part);
    for (const Expr::Edge& edge : expr.edges) size += SizeAt(edge.expr);
    if (expr.kind == Expr::Kind::kRepeat) size *= std::max({expr.min, expr.max, 1});
    return std::min(size, kLargestSize);
  }

  const SyntaxTree& tree_;
  std::vector<bool> is_used_;  // [expressions]
  absl::flat_hash_map<std::string, ExprId> index_;
  // [expressions]. What is counted of equal ones is counted at the first of them.
  std::vector<ExprId> first_;
  std::vector<int> num_uses_;
  std::vector<int64_t> sizes_;
  std::vector<std::vector<ExprId>> places_;
};

}  // namespace

void ShareParts(SyntaxTree* tree) {
  for (const std::vector<ExprId>& places : PartFinder(*tree).Run()) tree->MakeRule("a part that is repeated", places);
}

}  // namespace quire::grammar
