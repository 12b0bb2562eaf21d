// SPDX-License-Identifier: Apache-2.0

#include "grammar/syntax_tree.h"

#include <utility>

namespace quire::grammar {

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
  if (parts.size() == 1) return parts[0];
  return Add({.kind = Expr::Kind::kChoice, .parts = std::move(parts)});
}

ExprId SyntaxTree::Repeat(ExprId part, int min, int max) {
  return Add({.kind = Expr::Kind::kRepeat, .parts = {part}, .min = min, .max = max});
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

}  // namespace quire::grammar
