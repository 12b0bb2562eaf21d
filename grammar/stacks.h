// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_STACKS_H_
#define QUIRE_GRAMMAR_STACKS_H_

#include <cstdint>
#include <vector>

#include "grammar/automaton.h"

namespace quire::grammar {

// A place where a rule continues when the rule that it calls has ended, or one of these instead of a place:
using FrameId = int32_t;
inline constexpr FrameId kRootEnds = -1;  // The text ends with the rule.
inline constexpr FrameId kUnknown = -2;   // What follows is not known; see TokenMasks.

// Says where an automaton can be: a state, and what follows its rule.
struct Position {
  StateId state;
  FrameId frame;

  bool operator==(const Position&) const = default;
};

struct Frame {
  Position next;
  int32_t depth;  // The number of frames below this one, and this one.
};

// Frames that positions refer to. A frame refers only to frames before it, so a suffix can be dropped.
using Frames = std::vector<Frame>;

// All places where an automaton can be after some bytes.
struct PositionSet {
  std::vector<Position> positions;  // There are no duplicates.
  bool can_end = false;             // The text may end here.
  bool can_leave = false;           // What is not known may follow here.
};

// Behind a byte, more positions than the first number are left out, and more than the second one when what is reached
// without a byte is added. They are ways to read the same bytes, so a text that is accepted still matches; a grammar
// with so many ways may refuse texts that match.
inline constexpr size_t kMaxSteppedPositions = 128;
inline constexpr size_t kMaxPositions = 2048;

// Adds what is reached without a byte: the starts of called rules, and what follows rules that have ended. Frames with
// a depth above `max_depth` are not made.
void Close(const Automaton& automaton, int max_depth, Frames* frames, PositionSet* set);

// Replaces *to by what `byte` leads to from `from`, without closing it.
void Step(const Automaton& automaton, const PositionSet& from, uint8_t byte, PositionSet* to);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_STACKS_H_
