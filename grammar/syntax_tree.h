// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SYNTAX_TREE_H_
#define QUIRE_GRAMMAR_SYNTAX_TREE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/code_points.h"

namespace quire::grammar {

// The index of an expression in its tree.
using ExprId = int32_t;
// The index of a rule in its tree.
using RuleId = int32_t;

inline constexpr int kUnbounded = -1;
inline constexpr int64_t kMaxCharacterSteps = 500'000;

// What holds at a place of a text. A boundary has a letter of ASCII, a digit or _ on one side only.
enum class Assertion { kBegin, kEnd, kBoundary, kNoBoundary };

// A set of texts.
struct Expr {
  enum class Kind {
    kBytes,      // One text.
    kSet,        // Each character of a set.
    kSequence,   // One text of each part, one after the other.
    kChoice,     // A text of any part. Without parts there is no text.
    kRepeat,     // Some texts of the only part, one after the other.
    kGraph,      // The texts along the paths of a graph from node 0 to the last node.
    kRule,       // The texts of a rule.
    kAssertion,  // The empty text, where an assertion holds. For CharacterNfa alone, not in rules.
  };
  struct Edge {
    int from;
    int to;
    ExprId expr;
  };

  Kind kind;
  std::string bytes = {};                   // kBytes.
  CodePointSet set = {};                    // kSet.
  std::vector<ExprId> parts = {};           // kSequence, kChoice, kRepeat.
  int min = 0;                              // kRepeat.
  int max = 0;                              // kRepeat; kUnbounded has no limit.
  int num_nodes = 0;                        // kGraph.
  std::vector<Edge> edges = {};             // kGraph.
  RuleId rule = -1;                         // kRule.
  Assertion assertion = Assertion::kBegin;  // kAssertion.
};

struct Rule {
  std::string name;
  ExprId body = -1;
  std::string demands = {};  // What its texts must meet, for the error that there is none.
  // Says whether the rule is compiled into the rules that use it, if it is small and does not use itself. That makes
  // masks cheaper, unless many rules use it.
  bool may_be_inlined = false;
};

// A grammar as rules, which are expressions of each other. Rule 0 is the root. All front ends produce it.
class SyntaxTree {
 public:
  ExprId Bytes(std::string_view bytes);
  ExprId Set(CodePointSet set);
  ExprId Sequence(std::vector<ExprId> parts);
  // Empty parts become one choice.
  ExprId Choice(std::vector<ExprId> parts);
  // Repetitions of repetitions become one, where that has the same texts: (x?){4} becomes x{0,4}. So few states are
  // needed, and each text can be read in few ways.
  ExprId Repeat(ExprId part, int min, int max);
  ExprId Optional(ExprId part) { return Repeat(part, 0, 1); }
  ExprId Graph(int num_nodes, std::vector<Expr::Edge> edges);
  ExprId Use(RuleId rule);
  ExprId Assert(Assertion assertion);
  ExprId Nothing() { return Choice({}); }
  ExprId Empty() { return Bytes(""); }

  RuleId AddRule(std::string name, bool may_be_inlined);
  void SetBody(RuleId rule, ExprId body) { rules_[static_cast<size_t>(rule)].body = body; }
  void SetDemands(RuleId rule, std::string demands) { rules_[static_cast<size_t>(rule)].demands = std::move(demands); }
  // Makes a rule of the expression at the first place, and lets all places use it. REQUIRES: equal expressions are
  // there.
  void MakeRule(std::string name, const std::vector<ExprId>& places);

  const Expr& expr(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }
  const Rule& rule(RuleId id) const { return rules_[static_cast<size_t>(id)]; }
  int num_rules() const { return static_cast<int>(rules_.size()); }
  int num_exprs() const { return static_cast<int>(exprs_.size()); }
  // The steps that automata over characters (CharacterDfa) may still take, for all of this grammar together.
  int64_t* character_steps() { return &character_steps_; }

 private:
  ExprId Add(Expr expr);
  bool IsEmpty(ExprId id) const;

  std::vector<Expr> exprs_;
  std::vector<Rule> rules_;
  int64_t character_steps_ = kMaxCharacterSteps;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SYNTAX_TREE_H_
