// SPDX-License-Identifier: Apache-2.0

#include "grammar/syntax_tree.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace quire::grammar {
namespace {

constexpr int64_t kMaxRepetitions = int64_t{1} << 30;  // Far more than any automaton has states.

}  // namespace

ExprId SyntaxTree::Add(Expr expr) {
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size()) - 1;
}

ExprId SyntaxTree::Bytes(std::string_view bytes) {
  return Add({.kind = Expr::Kind::kBytes, .bytes = std::string(bytes)});
}

ExprId SyntaxTree::Set(CodePointSet set) {
  return Add({.kind = Expr::Kind::kSet, .set = std::move(set)});
}

ExprId SyntaxTree::Sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  return Add({.kind = Expr::Kind::kSequence, .parts = std::move(parts)});
}

ExprId SyntaxTree::Choice(std::vector<ExprId> parts) {
  const size_t num_empty = std::erase_if(parts, [this](ExprId part) { return IsEmpty(part); });
  if (num_empty > 0) return parts.empty() ? Empty() : Optional(Choice(std::move(parts)));
  if (parts.size() == 1) return parts[0];
  return Add({.kind = Expr::Kind::kChoice, .parts = std::move(parts)});
}

ExprId SyntaxTree::Repeat(ExprId part, int min, int max) {
  const Expr& inner = expr(part);
  if (inner.kind == Expr::Kind::kRepeat && inner.min <= 1 && inner.max != 0 && max != 0) {
    const bool is_bounded = inner.max != kUnbounded && max != kUnbounded;
    min *= inner.min;
    max = is_bounded ? static_cast<int>(std::min(int64_t{max} * inner.max, kMaxRepetitions)) : kUnbounded;
    part = inner.parts[0];
  }
  return Add({.kind = Expr::Kind::kRepeat, .parts = {part}, .min = min, .max = max});
}

bool SyntaxTree::IsEmpty(ExprId id) const {
  const Expr& at = expr(id);
  return (at.kind == Expr::Kind::kBytes && at.bytes.empty()) || (at.kind == Expr::Kind::kSequence && at.parts.empty());
}

ExprId SyntaxTree::Graph(int num_nodes, std::vector<Expr::Edge> edges) {
  return Add({.kind = Expr::Kind::kGraph, .num_nodes = num_nodes, .edges = std::move(edges)});
}

ExprId SyntaxTree::Use(RuleId rule) {
  return Add({.kind = Expr::Kind::kRule, .rule = rule});
}

ExprId SyntaxTree::Assert(Assertion assertion) {
  return Add({.kind = Expr::Kind::kAssertion, .assertion = assertion});
}

RuleId SyntaxTree::AddRule(std::string name, bool may_be_inlined) {
  rules_.push_back({.name = std::move(name), .may_be_inlined = may_be_inlined});
  return static_cast<RuleId>(rules_.size()) - 1;
}

void SyntaxTree::MakeRule(std::string name, const std::vector<ExprId>& places) {
  const RuleId rule = AddRule(std::move(name), /*may_be_inlined=*/false);
  SetBody(rule, Add(std::move(exprs_[static_cast<size_t>(places[0])])));
  for (const ExprId place : places) exprs_[static_cast<size_t>(place)] = {.kind = Expr::Kind::kRule, .rule = rule};
}

}  // namespace quire::grammar
