// SPDX-License-Identifier: Apache-2.0

#include "grammar/character_nfa.h"

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxCharacterNfaStates = 100'000;
constexpr size_t kMaxCharacterNfaRanges = 200'000;  // Of all steps.
constexpr int kMaxCharacterNfaDepth = 1000;

// Builds by Thompson's construction.
class CharacterNfaWriter {
 public:
  CharacterNfaWriter(const SyntaxTree& tree, CharacterNfa* nfa) : tree_(tree), nfa_(nfa) {}

  absl::Status Run(ExprId expr) {
    const int end = Write(expr, Add(), 0);
    Jump(end, Add());
    if (!is_full_) return absl::OkStatus();
    if (num_ranges_ > kMaxCharacterNfaRanges) {
      return absl::InvalidArgumentError(absl::StrCat("it needs more than ", kMaxCharacterNfaRanges,
                                                     " ranges of characters: its repetitions are too long"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("it needs more than ", kMaxCharacterNfaStates, " states: its repetitions are too long"));
  }

 private:
  int Add() {
    if (nfa_->states.size() >= kMaxCharacterNfaStates) {
      is_full_ = true;
      return 0;
    }
    nfa_->states.emplace_back();
    return static_cast<int>(nfa_->states.size()) - 1;
  }
  CharacterNfa::State& At(int state) { return nfa_->states[static_cast<size_t>(state)]; }
  void Jump(int from, int to) { At(from).jumps.push_back({to, std::nullopt}); }

  // Writes the paths of an expression that begin at `from`, and returns the state behind them.
  int Write(ExprId id, int from, int depth) {
    if (depth > kMaxCharacterNfaDepth) is_full_ = true;
    if (is_full_) return 0;
    const Expr& expr = tree_.expr(id);
    switch (expr.kind) {
      case Expr::Kind::kBytes:
        for (size_t i = 0; i < expr.bytes.size();) {
          const uint32_t c = DecodeUtf8(expr.bytes, &i);
          from = Step(from, {{c, c}});
        }
        return from;
      case Expr::Kind::kSet:
        return Step(from, expr.set.ranges());
      case Expr::Kind::kSequence:
        for (const ExprId part : expr.parts) from = Write(part, from, depth + 1);
        return from;
      case Expr::Kind::kChoice: {
        const int end = Add();
        for (const ExprId part : expr.parts) Jump(Write(part, Entered(from), depth + 1), end);
        return end;
      }
      case Expr::Kind::kRepeat:
        return WriteRepeat(expr, from, depth);
      case Expr::Kind::kAssertion: {
        nfa_->has_assertions = true;
        const int end = Add();
        At(from).jumps.push_back({end, expr.assertion});
        return end;
      }
      case Expr::Kind::kGraph:
        return WriteGraph(expr, from, depth);
      case Expr::Kind::kRule:
        break;
    }
    return from;
  }

  int Step(int from, const std::vector<CodePointRange>& ranges) {
    num_ranges_ += ranges.size();
    if (num_ranges_ > kMaxCharacterNfaRanges) is_full_ = true;
    if (is_full_) return 0;
    const int end = Add();
    for (const CodePointRange& range : ranges) At(from).steps.push_back({range, end});
    return end;
  }
  // Returns a new state that is entered together with `from`.
  int Entered(int from) {
    const int state = Add();
    Jump(from, state);
    return state;
  }

  int WriteRepeat(const Expr& expr, int from, int depth) {
    int at = Entered(from);
    for (int i = 0; i < expr.min && !is_full_; ++i) at = Write(expr.parts[0], at, depth + 1);
    if (expr.max == kUnbounded) {
      const int loop = Entered(at);
      Jump(Write(expr.parts[0], Entered(loop), depth + 1), loop);
      return Entered(loop);
    }
    const int end = Add();
    for (int i = expr.min; i < expr.max && !is_full_; ++i) {
      Jump(at, end);
      at = Write(expr.parts[0], Entered(at), depth + 1);
    }
    Jump(at, end);
    return end;
  }

  int WriteGraph(const Expr& expr, int from, int depth) {
    std::vector<int> nodes;
    for (int i = 0; i < expr.num_nodes; ++i) nodes.push_back(Add());
    if (is_full_) return 0;
    Jump(from, nodes.front());
    for (const Expr::Edge& edge : expr.edges) {
      const int last = Write(edge.expr, Entered(nodes[static_cast<size_t>(edge.from)]), depth + 1);
      Jump(last, nodes[static_cast<size_t>(edge.to)]);
    }
    return nodes.back();
  }

  const SyntaxTree& tree_;
  CharacterNfa* const nfa_;
  size_t num_ranges_ = 0;
  bool is_full_ = false;
};

}  // namespace

absl::StatusOr<CharacterNfa> BuildCharacterNfa(const SyntaxTree& tree, ExprId expr) {
  CharacterNfa nfa;
  const absl::Status status = CharacterNfaWriter(tree, &nfa).Run(expr);
  if (!status.ok()) return status;
  return nfa;
}

}  // namespace quire::grammar
