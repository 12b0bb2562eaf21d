// SPDX-License-Identifier: Apache-2.0

#include "grammar/nfa.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/types/span.h"

namespace quire::grammar {
namespace {

// Largest number of expressions of an inlined rule, including the rules that it inlines itself.
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

// Finds the rules that match the empty text: first those that need no other rule for it, then those that use them.
class NullableSearch {
 public:
  explicit NullableSearch(const SyntaxTree& tree)
      : tree_(tree),
        is_nullable_(static_cast<size_t>(tree.num_rules())),
        users_(static_cast<size_t>(tree.num_rules())) {}

  std::vector<bool> Run() {
    std::vector<RuleId> found;
    const auto try_rule = [&](RuleId rule) {
      if (is_nullable_[static_cast<size_t>(rule)] || !Matches(tree_.rule(rule).body)) return;
      is_nullable_[static_cast<size_t>(rule)] = true;
      found.push_back(rule);
    };
    for (RuleId rule = 0; rule < tree_.num_rules(); ++rule) {
      user_ = rule;
      CollectUses(tree_.rule(rule).body);
    }
    for (RuleId rule = 0; rule < tree_.num_rules(); ++rule) try_rule(rule);
    for (size_t i = 0; i < found.size(); ++i) {
      for (const RuleId user : users_[static_cast<size_t>(found[i])]) try_rule(user);
    }
    return std::move(is_nullable_);
  }

 private:
  void CollectUses(ExprId id) {
    const Expr& expr = tree_.expr(id);
    if (expr.kind == Expr::Kind::kRule) {
      std::vector<RuleId>& users = users_[static_cast<size_t>(expr.rule)];
      if (users.empty() || users.back() != user_) users.push_back(user_);
    }
    for (const ExprId part : expr.parts) CollectUses(part);
    for (const Expr::Edge& edge : expr.edges) CollectUses(edge.expr);
  }

  // Returns whether the expression matches the empty text, as far as is known of the rules that it uses.
  bool Matches(ExprId id) const {
    const Expr& expr = tree_.expr(id);
    const auto matches = [this](ExprId part) { return Matches(part); };
    switch (expr.kind) {
      case Expr::Kind::kBytes:
        return expr.bytes.empty();
      case Expr::Kind::kSet:
        return false;
      case Expr::Kind::kSequence:
        return std::all_of(expr.parts.begin(), expr.parts.end(), matches);
      case Expr::Kind::kChoice:
        return std::any_of(expr.parts.begin(), expr.parts.end(), matches);
      case Expr::Kind::kRepeat:
        return expr.min == 0 || Matches(expr.parts[0]);
      case Expr::Kind::kGraph:
        return HasEmptyPath(expr);
      case Expr::Kind::kRule:
        return is_nullable_[static_cast<size_t>(expr.rule)];
      case Expr::Kind::kAssertion:
        break;
    }
    return false;
  }

  bool HasEmptyPath(const Expr& expr) const {
    std::vector<std::vector<int>> next(static_cast<size_t>(expr.num_nodes));
    for (const Expr::Edge& edge : expr.edges) {
      if (Matches(edge.expr)) next[static_cast<size_t>(edge.from)].push_back(edge.to);
    }
    std::vector<bool> is_reached(next.size());
    std::vector<int> nodes = {0};
    is_reached[0] = true;
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const int node : next[static_cast<size_t>(nodes[i])]) {
        if (is_reached[static_cast<size_t>(node)]) continue;
        is_reached[static_cast<size_t>(node)] = true;
        nodes.push_back(node);
      }
    }
    return is_reached.back();
  }

  const SyntaxTree& tree_;
  std::vector<bool> is_nullable_;           // [rules]
  std::vector<std::vector<RuleId>> users_;  // [rules], the rules that use each.
  RuleId user_ = -1;
};

// Builds by Thompson's construction.
class NfaWriter {
 public:
  NfaWriter(const SyntaxTree& tree, const std::vector<bool>& is_inlined, const std::vector<bool>& is_nullable,
            int max_size, Nfa* nfa)
      : tree_(tree), is_inlined_(is_inlined), is_nullable_(is_nullable), max_size_(max_size), nfa_(nfa) {}

  bool Run(RuleId rule) {
    const int32_t start = Add();
    const int32_t end = Write(tree_.rule(rule).body, start, 0);
    if (!is_full_) At(end).kind = Kind::kEnd;
    return !is_full_;
  }

 private:
  using Kind = Nfa::State::Kind;

  int32_t Add() {
    if (static_cast<int>(nfa_->states.size() + nfa_->ranges.size()) >= max_size_) {
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

  // Adds a state that reads one byte.
  int32_t AddRanges(absl::Span<const Nfa::Range> ranges) {
    const int32_t state = Add();
    if (is_full_) return 0;
    At(state).kind = Kind::kBytes;
    At(state).first_range = static_cast<int32_t>(nfa_->ranges.size());
    At(state).num_ranges = static_cast<int32_t>(ranges.size());
    nfa_->ranges.insert(nfa_->ranges.end(), ranges.begin(), ranges.end());
    return state;
  }

  int32_t WriteBytes(std::string_view bytes, int32_t from) {
    int32_t at = Step(from);
    for (const char c : bytes) {
      const int32_t end = Add();
      const auto byte = static_cast<uint8_t>(c);
      Jump(at, AddRanges({{byte, byte, end}}));
      if (is_full_) return 0;
      at = end;
    }
    return at;
  }

  // Writes the paths of an expression that begin at `from`, which must be a jump, and returns the state behind them,
  // which is a new one.
  int32_t Write(ExprId id, int32_t from, int depth) {
    if (depth > kMaxNfaDepth) is_full_ = true;
    if (is_full_) return 0;
    const Expr& expr = tree_.expr(id);
    switch (expr.kind) {
      case Expr::Kind::kBytes:
        return WriteBytes(expr.bytes, from);
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

  // All sequences that end with the same bytes share the states for these.
  int32_t WriteSet(const CodePointSet& set, int32_t from) {
    const int32_t end = Add();
    std::vector<ByteSequence> sequences;
    for (const CodePointRange& range : set.ranges()) AppendUtf8Sequences(range, &sequences);
    std::map<std::string, int32_t> places = {{"", end}};
    std::vector<Nfa::Range> first;
    for (const ByteSequence& sequence : sequences) {
      int32_t next = end;
      std::string rest;
      for (int i = sequence.length; --i > 0;) {
        rest += {static_cast<char>(sequence.first[i]), static_cast<char>(sequence.last[i])};
        int32_t& place = places.try_emplace(rest, -1).first->second;
        if (place < 0) place = AddRanges({{sequence.first[i], sequence.last[i], next}});
        if (is_full_) return 0;
        next = place;
      }
      if (!first.empty() && first.back().next == next && first.back().last + 1 == sequence.first[0]) {
        first.back().last = sequence.last[0];
      } else {
        first.push_back({sequence.first[0], sequence.last[0], next});
      }
    }
    Jump(from, AddRanges(first));
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
    if (is_nullable_[static_cast<size_t>(rule)]) Jump(from, end);
    if (is_full_) return 0;
    At(call).kind = Kind::kCall;
    At(call).rule = rule;
    At(call).next[0] = end;
    return end;
  }

  const SyntaxTree& tree_;
  const std::vector<bool>& is_inlined_;
  const std::vector<bool>& is_nullable_;
  const int max_size_;
  Nfa* const nfa_;
  bool is_full_ = false;
};

}  // namespace

std::vector<bool> NullableRules(const SyntaxTree& tree) {
  return NullableSearch(tree).Run();
}

std::vector<bool> InlinedRules(const SyntaxTree& tree) {
  RuleSizes sizes(tree);
  std::vector<bool> inlined;
  for (RuleId rule = 0; rule < tree.num_rules(); ++rule) {
    inlined.push_back(tree.rule(rule).may_be_inlined && sizes.Of(rule) <= kMaxInlinedSize);
  }
  return inlined;
}

bool BuildNfa(const SyntaxTree& tree, RuleId rule, const std::vector<bool>& is_inlined,
              const std::vector<bool>& is_nullable, int max_size, Nfa* nfa) {
  return NfaWriter(tree, is_inlined, is_nullable, max_size, nfa).Run(rule);
}

}  // namespace quire::grammar
