// SPDX-License-Identifier: Apache-2.0

#include "grammar/nesting.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace quire::grammar {
namespace {

// Finds the least number of levels that leads from each state to the end of its rule, the smallest numbers first.
class LeastLevels {
 public:
  LeastLevels(const Automaton& automaton, int max_depth)
      : automaton_(automaton),
        levels_(static_cast<size_t>(automaton.num_states()), kUnknown),
        before_(levels_.size()),
        queues_(static_cast<size_t>(max_depth) + 1) {}

  // Returns whether the end of rule 0 is within the limit.
  bool Run() {
    for (StateId state = 0; state < automaton_.num_states(); ++state) Collect(state);
    for (size_t level = 0; level < queues_.size(); ++level) {
      for (size_t i = 0; i < queues_[level].size(); ++i) Settle(queues_[level][i], static_cast<int>(level));
    }
    return LevelOf(automaton_.start(0)) != kUnknown;
  }

 private:
  static constexpr int kUnknown = -1;
  struct CallSite {
    StateId state;
    Automaton::Call call;
  };

  int LevelOf(StateId state) const { return levels_[static_cast<size_t>(state)]; }

  void Collect(StateId state) {
    if (automaton_.is_final(state)) Reach(state, 0);
    StateId last = kNoState;
    for (const StateId next : automaton_.Successors(state)) {
      if (next != kNoState && next != last) before_[static_cast<size_t>(next)].push_back(state);
      last = next;
    }
    for (const Automaton::Call& call : automaton_.calls(state)) {
      calls_[automaton_.start(call.rule)].push_back({state, call});
      if (call.next != kNoState) calls_[call.next].push_back({state, call});
    }
  }

  void Reach(StateId state, int level) {
    if (level < static_cast<int>(queues_.size())) queues_[static_cast<size_t>(level)].push_back(state);
  }

  void Settle(StateId state, int level) {
    if (LevelOf(state) != kUnknown) return;
    levels_[static_cast<size_t>(state)] = level;
    for (const StateId before : before_[static_cast<size_t>(state)]) Reach(before, level);
    const auto sites = calls_.find(state);
    if (sites == calls_.end()) return;
    for (const auto& [caller, call] : sites->second) {
      const int called = LevelOf(automaton_.start(call.rule));
      if (called == kUnknown) continue;
      if (call.next == kNoState) {
        Reach(caller, called);  // The calling rule ends with the call, which needs no level.
      } else if (LevelOf(call.next) != kUnknown) {
        Reach(caller, std::max(called + 1, LevelOf(call.next)));
      }
    }
  }

  const Automaton& automaton_;
  std::vector<int> levels_;                                    // [states]
  std::vector<std::vector<StateId>> before_;                   // [states], from where a byte leads there.
  absl::flat_hash_map<StateId, std::vector<CallSite>> calls_;  // The keys are the states on which they wait.
  std::vector<std::vector<StateId>> queues_;                   // The index is the level.
};

}  // namespace

bool HasTextWithin(const Automaton& automaton, int max_depth) {
  if (automaton.matches_empty()) return true;
  // The text with the fewest levels has no rule within itself.
  std::set<RuleId> rules;
  for (StateId state = 0; state < automaton.num_states(); ++state) rules.insert(automaton.rule_of(state));
  if (static_cast<int>(rules.size()) <= max_depth) return true;
  return LeastLevels(automaton, max_depth).Run();
}

}  // namespace quire::grammar
