// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_STATE_RUNS_H_
#define QUIRE_GRAMMAR_STATE_RUNS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/character_kinds.h"

namespace quire::grammar {

// Knows where the states of one automaton go with most characters: the inside of a string stays where it is, or moves
// to the state with one character less to come. Not thread-safe.
class StateRuns {
 public:
  // Begins with an automaton, unless it is the last one.
  void SetAutomaton(const Automaton& automaton);

  // Returns the number N for which, among the texts with these suffixes, texts of at most N characters continue the
  // rule of the state, and all longer ones do not. On the way the rule neither calls another one nor ends; it may end
  // if `may_end`. Returns -1 when there is no such number, or when it is not known.
  int CharactersThatFit(StateId state, const Suffixes& suffixes, bool may_end);

  // Returns whether most texts continue the rule of the state. Then its mask is large.
  bool IsWide(StateId state);

  // Returns what was done since the last call, as TokenMasks::Fill counts it: states are looked at when they are first
  // needed.
  int64_t TakeWork() { return std::exchange(work_, 0); }

 private:
  struct Run {
    bool is_known = false;
    StateId next = kNoState;
    CharacterKinds kinds = 0;    // Every character of these leads to `next`.
    CharacterKinds refused = 0;  // No character of these leads anywhere.
  };

  const Run& RunOf(StateId state);
  // Returns whether every character beyond ASCII leads to `next`.
  bool LeadsBeyondAscii(StateId state, StateId next);
  // Returns whether no character beyond ASCII leads anywhere.
  bool RefusesBeyondAscii(StateId state) const;

  const Automaton* automaton_ = nullptr;
  uint64_t serial_ = 0;
  std::vector<Run> runs_;  // [states]
  int64_t work_ = 0;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_STATE_RUNS_H_
