// SPDX-License-Identifier: Apache-2.0

#include "grammar/nfa.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quire::grammar {
namespace {

// A rule that is inlined has at most this many expressions, with those of the rules that it inlines itself.
constexpr int kMaxInlinedSize = 256;
constexpr int kMaxNfaDepth = 1000;

// Finds the sizes of rules, and rules that use themselves.
class RuleSizes {
 public:
  explicit RuleSizes(const SyntaxTree& tree) : tree_(tree), sizes_(static_cast<size_t>(tree.num_rules()), kUnknown) {}

  // The number of expressions of a rule, or more than kMaxInlinedSize for a large one and for one that uses itself.
  int Of(RuleId rule) {
    int& size = sizes_[static_cast<size_t>(rule)];
    if (size == kUnderWay) return kTooLarge;
    if (size != kUnknown) return size;
    size = kUnderWay;
    const int result = std::min(OfExpr(tree_.rule(rule).body, 0), kTooLarge);
    sizes_[static_cast<size_t>(rule)] = result;
    return result;
  }

 private:
  static constexpr int kUnknown = -1;
  static constexpr int kUnderWay = -2;
  static constexpr int kTooLarge = kMaxInlinedSize + 1;

  int OfExpr(ExprId id, int depth) {
    if (depth > kMaxInlinedSize) return kTooLarge;
    const Expr& expr = tree_.expr(id);
    int64_t size = 1 + static_cast<int64_t>(expr.bytes.size());
    if (expr.kind == Expr::Kind::kRule) size += Of(expr.rule);
    for (const ExprId part : expr.parts) size = std::min<int64_t>(size + OfExpr(part, depth + 1), kTooLarge);
    for (const Expr::Edge& edge : expr.edges) {
      size = std::min<int64_t>(size + OfExpr(edge.expr, depth + 1), kTooLarge);
    }
    if (expr.kind == Expr::Kind::kRepeat) size *= std::clamp(std::max(expr.min, expr.max), 1, kTooLarge);
    return static_cast<int>(std::min<int64_t>(size, kTooLarge));
  }

  const SyntaxTree& tree_;
  std::vector<int> sizes_;
};

// Builds by Thompson's construction.
class NfaWriter {
 public:
  NfaWriter(const SyntaxTree& tree, const std::vector<bool>& is_inlined, int max_states, Nfa* nfa)
      : tree_(tree), is_inlined_(is_inlined), max_states_(max_states), nfa_(nfa) {}

  absl::Status Run(RuleId rule) {
    const int32_t start = Add();
    const int32_t end = Write(tree_.rule(rule).body, start, 0);
    if (is_full_) {
      return absl::InvalidArgumentError(
          absl::StrCat("rule \"", tree_.rule(rule).name, "\" needs more than ", max_states_,
                       " states before it is compiled: its repetitions are too long, or it is nested too deeply"));
    }
    nfa_->states[static_cast<size_t>(end)].kind = Nfa::State::Kind::kEnd;
    return absl::OkStatus();
  }

 private:
  using Kind = Nfa::State::Kind;

  int32_t Add() {
    if (static_cast<int>(nfa_->states.size()) >= max_states_) {
      is_full_ = true;
      return 0;
    }
    nfa_->states.emplace_back();
    return static_cast<int32_t>(nfa_->states.size()) - 1;
  }

  Nfa::State& At(int32_t state) { return nfa_->states[static_cast<size_t>(state)]; }

  // Adds a jump. A state with two jumps gets a third one by way of a new state.
  void Jump(int32_t from, int32_t to) {
    while (!is_full_) {
      if (At(from).next[0] < 0) {
        At(from).next[0] = to;
        return;
      }
      if (At(from).next[1] < 0) {
        const int32_t more = Add();
        if (is_full_) return;
        At(from).next[1] = more;
      }
      from = At(from).next[1];
    }
  }

  // Returns a state behind `from` that is reached with these bytes.
  int32_t AddBytes(int32_t from, uint8_t first, uint8_t last) {
    const int32_t state = Add();
    const int32_t end = Add();
    if (is_full_) return end;
    Jump(from, state);
    At(state).kind = Kind::kBytes;
    At(state).first = first;
    At(state).last = last;
    At(state).next[0] = end;
    return end;
  }

  // Writes the paths of an expression that begin at `from`, which must be a jump, and returns the state behind them,
  // which is a new one.
  int32_t Write(ExprId id, int32_t from, int depth) {
    if (depth > kMaxNfaDepth) is_full_ = true;
    if (is_full_) return 0;
    const Expr& expr = tree_.expr(id);
    switch (expr.kind) {
      case Expr::Kind::kBytes: {
        int32_t at = Step(from);
        for (const char c : expr.bytes) at = AddBytes(at, static_cast<uint8_t>(c), static_cast<uint8_t>(c));
        return at;
      }
      case Expr::Kind::kSet:
        return WriteSet(expr.set, from);
      case Expr::Kind::kSequence: {
        int32_t at = Step(from);
        for (const ExprId part : expr.parts) at = Write(part, at, depth + 1);
        return at;
      }
      case Expr::Kind::kChoice: {
        const int32_t end = Add();
        int32_t at = Step(from);
        for (const ExprId part : expr.parts) {
          Jump(Write(part, Step(at), depth + 1), end);
          at = Step(at);
        }
        return end;
      }
      case Expr::Kind::kRepeat:
        return WriteRepeat(expr, from, depth);
      case Expr::Kind::kGraph:
        return WriteGraph(expr, from, depth);
      case Expr::Kind::kRule:
        return WriteRule(expr.rule, from, depth);
      case Expr::Kind::kAssertion:
        break;
    }
    return from;
  }

  int32_t Step(int32_t from) {
    const int32_t state = Add();
    Jump(from, state);
    return state;
  }

  int32_t WriteSet(const CodePointSet& set, int32_t from) {
    const int32_t end = Add();
    std::vector<ByteSequence> sequences;
    for (const CodePointRange& range : set.ranges()) AppendUtf8Sequences(range, &sequences);
    int32_t start = Step(from);
    for (const ByteSequence& sequence : sequences) {
      int32_t at = Step(start);
      for (int i = 0; i < sequence.length && !is_full_; ++i) at = AddBytes(at, sequence.first[i], sequence.last[i]);
      Jump(at, end);
      start = Step(start);
    }
    return end;
  }

  int32_t WriteRepeat(const Expr& expr, int32_t from, int depth) {
    int32_t at = Step(from);
    for (int i = 0; i < expr.min && !is_full_; ++i) at = Write(expr.parts[0], at, depth + 1);
    if (expr.max == kUnbounded) {
      const int32_t loop = Step(at);
      const int32_t last = Write(expr.parts[0], Step(loop), depth + 1);
      Jump(last, loop);
      return Step(loop);
    }
    const int32_t end = Add();
    for (int i = expr.min; i < expr.max && !is_full_; ++i) {
      Jump(at, end);
      at = Write(expr.parts[0], Step(at), depth + 1);
    }
    Jump(at, end);
    return end;
  }

  int32_t WriteGraph(const Expr& expr, int32_t from, int depth) {
    std::vector<int32_t> nodes;
    for (int i = 0; i < expr.num_nodes; ++i) nodes.push_back(Add());
    if (is_full_) return 0;
    Jump(from, nodes.front());
    for (const Expr::Edge& edge : expr.edges) {
      const int32_t last = Write(edge.expr, Step(nodes[static_cast<size_t>(edge.from)]), depth + 1);
      Jump(last, nodes[static_cast<size_t>(edge.to)]);
    }
    return Step(nodes.back());
  }

  int32_t WriteRule(RuleId rule, int32_t from, int depth) {
    if (is_inlined_[static_cast<size_t>(rule)]) return Write(tree_.rule(rule).body, Step(from), depth + 1);
    const int32_t call = Step(from);
    const int32_t end = Add();
    if (is_full_) return 0;
    At(call).kind = Kind::kCall;
    At(call).rule = rule;
    At(call).next[0] = end;
    return end;
  }

  const SyntaxTree& tree_;
  const std::vector<bool>& is_inlined_;
  const int max_states_;
  Nfa* const nfa_;
  bool is_full_ = false;
};

}  // namespace

std::vector<bool> InlinedRules(const SyntaxTree& tree) {
  RuleSizes sizes(tree);
  std::vector<bool> inlined;
  for (RuleId rule = 0; rule < tree.num_rules(); ++rule) {
    inlined.push_back(tree.rule(rule).may_be_inlined && sizes.Of(rule) <= kMaxInlinedSize);
  }
  return inlined;
}

absl::Status BuildNfa(const SyntaxTree& tree, RuleId rule, const std::vector<bool>& is_inlined, int max_states,
                      Nfa* nfa) {
  return NfaWriter(tree, is_inlined, max_states, nfa).Run(rule);
}

}  // namespace quire::grammar
