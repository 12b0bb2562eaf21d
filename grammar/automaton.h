// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_AUTOMATON_H_
#define QUIRE_GRAMMAR_AUTOMATON_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

// Limits of one compilation, which bound its time and memory.
inline constexpr int kMaxNfaSize = 400'000;  // States and ranges of NFAs.
inline constexpr int kMaxStates = 60'000;
inline constexpr int64_t kMaxSubsetWork = 3'000'000;  // Visits of NFA states and of classes of bytes.

// The state of a rule: a row of the table below. States of all rules have different numbers.
using StateId = int32_t;
inline constexpr StateId kNoState = -1;

// A pushdown automaton over bytes. Each rule is a deterministic automaton, except that a state may also call other
// rules, and that a final state may have successors. A text matches if it leads from the start of rule 0 to a final
// state of it, or if it is empty and matches_empty(). From every state that can be reached, some text leads to the end.
// A rule that is called does not match the empty text, and no rule can begin with itself.
//
// Immutable; thread-safe.
class Automaton {
 public:
  // The state continues at `next` when the called rule has ended. kNoState: the calling rule ends with it.
  struct Call {
    RuleId rule;
    StateId next;
  };

  // INVALID_ARGUMENT when no text matches, when a rule can begin with itself, and when a limit is reached. The message
  // names the rule.
  static absl::StatusOr<std::shared_ptr<const Automaton>> Compile(SyntaxTree tree, std::string_view owner = "");

  StateId Next(StateId state, uint8_t byte) const {
    const State& from = states_[static_cast<size_t>(state)];
    return table_[from.row + classes_[from.classes][byte]];
  }
  const std::vector<Call>& calls(StateId state) const { return calls_[static_cast<size_t>(state)]; }
  // Returns the states to which Next leads, with kNoState and with duplicates.
  absl::Span<const StateId> Successors(StateId state) const {
    const State& from = states_[static_cast<size_t>(state)];
    return absl::MakeConstSpan(table_).subspan(from.row, from.num_classes);
  }
  bool is_final(StateId state) const { return states_[static_cast<size_t>(state)].is_final; }
  // Returns whether Next leads anywhere with any byte.
  bool has_bytes(StateId state) const { return states_[static_cast<size_t>(state)].has_bytes; }
  RuleId rule_of(StateId state) const { return states_[static_cast<size_t>(state)].rule; }
  // Returns whether the empty text matches.
  bool matches_empty() const { return matches_empty_; }
  int num_rules() const { return static_cast<int>(rules_.size()); }
  int num_states() const { return static_cast<int>(states_.size()); }

  StateId start(RuleId rule) const { return rules_[static_cast<size_t>(rule)].start; }
  StateId first_state(RuleId rule) const { return rules_[static_cast<size_t>(rule)].first_state; }
  int num_states(RuleId rule) const { return rules_[static_cast<size_t>(rule)].num_states; }
  // Returns whether no state of the rule calls another rule.
  bool is_leaf(RuleId rule) const { return rules_[static_cast<size_t>(rule)].is_leaf; }
  // The bytes that may follow a text of the rule, in any context.
  const std::bitset<256>& follow(RuleId rule) const { return rules_[static_cast<size_t>(rule)].follow; }
  // Leaf rules with equal contents have equal masks, and their grammars have the same owner. The content of other
  // rules, and of large ones, is empty.
  const std::string& content(RuleId rule) const { return rules_[static_cast<size_t>(rule)].content; }
  // A number that no other automaton of this process has.
  uint64_t serial() const { return serial_; }
  size_t num_bytes() const;

 private:
  friend class AutomatonBuilder;

  struct State {
    uint32_t row = 0;      // The place in table_ of its first successor.
    uint32_t classes = 0;  // The index in classes_.
    uint32_t num_classes = 0;
    RuleId rule = -1;
    bool is_final = false;
    bool has_bytes = false;
  };
  struct RuleStates {
    StateId start = kNoState;
    StateId first_state = kNoState;
    int num_states = 0;
    bool is_leaf = true;
    std::bitset<256> follow;
    std::string content;
  };

  std::vector<State> states_;
  std::vector<std::vector<Call>> calls_;           // [states]
  std::vector<StateId> table_;                     // Successors by class of byte, state after state.
  std::vector<std::array<uint8_t, 256>> classes_;  // The class of each byte, for each rule.
  std::vector<RuleStates> rules_;                  // Rules that are not used have no states.
  uint64_t serial_ = 0;
  bool matches_empty_ = false;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_AUTOMATON_H_
