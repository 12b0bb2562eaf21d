// SPDX-License-Identifier: Apache-2.0

#include "grammar/equal_states.h"

#include <cstdint>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace quire::grammar {
namespace {

// Moore's refinement of classes, one round for each byte. A round looks only at states of which a successor got another
// class in the round before.
class Refinement {
 public:
  // Subtracts what it does from *work.
  Refinement(const Automaton& automaton, RuleId rule, int64_t* work)
      : automaton_(automaton),
        first_(automaton.first_state(rule)),
        num_states_(automaton.num_states(rule)),
        classes_(static_cast<size_t>(num_states_)),
        before_(static_cast<size_t>(num_states_)),
        is_looked_at_(static_cast<size_t>(num_states_)) {
    sizes_.resize(2);
    for (int state = 0; state < num_states_; ++state) {
      classes_[static_cast<size_t>(state)] = automaton_.is_final(first_ + state) ? 1 : 0;
      ++sizes_[static_cast<size_t>(ClassOf(state))];
      looked_at_.push_back(state);
      int last = -1;
      --*work;
      ForEachNext(state, [&](StateId next) {
        --*work;
        if (next != kNoState && next - first_ != last) {
          last = next - first_;
          before_[static_cast<size_t>(last)].push_back(state);
        }
      });
    }
  }

  // Returns false when *work is used up.
  bool Run(int max_rounds, int64_t* work) {
    for (int round = 0; round < max_rounds && !looked_at_.empty(); ++round) {
      for (const int state : looked_at_) {
        *work -= 1 + static_cast<int64_t>(automaton_.Successors(first_ + state).size() +
                                          automaton_.calls(first_ + state).size());
      }
      if (*work < 0) return false;
      Split();
    }
    return true;
  }

  std::vector<StateId> FirstOfClasses() const {
    std::vector<StateId> first_of_class(sizes_.size(), kNoState);
    std::vector<StateId> result;
    for (int state = 0; state < num_states_; ++state) {
      StateId& first = first_of_class[static_cast<size_t>(ClassOf(state))];
      if (first == kNoState) first = first_ + state;
      result.push_back(first);
    }
    return result;
  }

 private:
  int ClassOf(int state) const { return classes_[static_cast<size_t>(state)]; }

  template <typename Visit>
  void ForEachNext(int state, Visit visit) const {
    for (const StateId next : automaton_.Successors(first_ + state)) visit(next);
    for (const Automaton::Call& call : automaton_.calls(first_ + state)) visit(call.next);
  }

  // The class of a state, and what it does with the next byte.
  std::vector<int> SignatureOf(int state) const {
    std::vector<int> signature = {ClassOf(state)};
    ForEachNext(state, [&](StateId next) { signature.push_back(next == kNoState ? -1 : ClassOf(next - first_)); });
    for (const Automaton::Call& call : automaton_.calls(first_ + state)) signature.push_back(call.rule);
    return signature;
  }

  // States that are not looked at keep their class, and have other signatures than those that are.
  void Split() {
    std::vector<int> num_looked_at(sizes_.size());
    for (const int state : looked_at_) ++num_looked_at[static_cast<size_t>(ClassOf(state))];
    absl::flat_hash_map<std::vector<int>, int> new_classes;
    std::vector<std::pair<int, int>> moved;
    std::vector<bool> is_kept(sizes_.size());  // Whether states with some signature keep the class.
    for (const int state : looked_at_) {
      const auto old_class = static_cast<size_t>(ClassOf(state));
      const auto [entry, is_new] = new_classes.try_emplace(SignatureOf(state), static_cast<int>(sizes_.size()));
      if (is_new) {
        if (num_looked_at[old_class] == sizes_[old_class] && !is_kept[old_class]) {
          is_kept[old_class] = true;
          entry->second = static_cast<int>(old_class);
        } else {
          sizes_.push_back(0);
        }
      }
      if (entry->second != ClassOf(state)) moved.emplace_back(state, entry->second);
    }
    looked_at_.clear();
    for (const auto& [state, new_class] : moved) {
      --sizes_[static_cast<size_t>(ClassOf(state))];
      ++sizes_[static_cast<size_t>(new_class)];
      classes_[static_cast<size_t>(state)] = new_class;
    }
    for (const auto& [state, new_class] : moved) {
      for (const int before : before_[static_cast<size_t>(state)]) {
        if (is_looked_at_[static_cast<size_t>(before)]) continue;
        is_looked_at_[static_cast<size_t>(before)] = true;
        looked_at_.push_back(before);
      }
    }
    for (const int state : looked_at_) is_looked_at_[static_cast<size_t>(state)] = false;
  }

  const Automaton& automaton_;
  const StateId first_;
  const int num_states_;
  std::vector<int> classes_;              // [states]
  std::vector<int> sizes_;                // [classes]
  std::vector<std::vector<int>> before_;  // [states], those that lead to each.
  std::vector<int> looked_at_;            // The states of the next round.
  std::vector<bool> is_looked_at_;        // [states]
};

std::vector<StateId> EachState(const Automaton& automaton, RuleId rule) {
  std::vector<StateId> states(static_cast<size_t>(automaton.num_states(rule)));
  std::iota(states.begin(), states.end(), automaton.first_state(rule));
  return states;
}

}  // namespace

std::vector<StateId> FindEqualStates(const Automaton& automaton, RuleId rule, int max_bytes, int64_t* work) {
  Refinement refinement(automaton, rule, work);
  int64_t left = kMaxEqualStatesWork;
  const bool is_complete = refinement.Run(max_bytes, &left);
  *work -= kMaxEqualStatesWork - left;
  return is_complete ? refinement.FirstOfClasses() : EachState(automaton, rule);
}

std::vector<std::vector<StateId>> FindAllEqualStates(const Automaton& automaton, int max_bytes) {
  std::vector<std::vector<StateId>> result(static_cast<size_t>(automaton.num_rules()));
  int64_t left = kMaxAllEqualStatesWork;
  for (RuleId rule = 0; rule < automaton.num_rules(); ++rule) {
    if (automaton.num_states(rule) < kManyStates) continue;
    result[static_cast<size_t>(rule)] =
        left > 0 ? FindEqualStates(automaton, rule, max_bytes, &left) : EachState(automaton, rule);
  }
  return result;
}

}  // namespace quire::grammar
