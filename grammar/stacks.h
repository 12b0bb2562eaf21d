// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_STACKS_H_
#define QUIRE_GRAMMAR_STACKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "grammar/automaton.h"

namespace quire::grammar {

// A rule that was called, whose end is still to come, or one of these:
using FrameId = int32_t;
inline constexpr FrameId kRootEnds = -1;  // The text ends with the rule.
inline constexpr FrameId kUnknown = -2;   // What follows is not known; see TokenMasks.

// Says where an automaton can be: a state, and what follows its rule.
struct Position {
  StateId state;
  FrameId frame;

  bool operator==(const Position&) const = default;
  template <typename H>
  friend H AbslHashValue(H hash, const Position& position) {
    return H::combine(std::move(hash), position.state, position.frame);
  }
};

// The stacks of all positions as a graph. All calls of a rule at the same place of the text share one frame, so the
// number of frames that a place adds is at most the number of rules, in however many ways the text can be read. Frames
// of the last place can be dropped.
struct Frames {
  struct Frame {
    RuleId rule;
    int32_t depth;       // The least number of frames that lead from here to the root.
    int32_t first_link;  // The place in `links` of the first position where the text can continue behind the rule.
  };
  struct Link {
    Position next;
    int32_t other;  // The place of the next link of the same frame, or -1.
  };
  struct Size {
    size_t num_frames = 0;
    size_t num_links = 0;
  };

  Size size() const { return {frames.size(), links.size()}; }
  // Drops the frames of all places behind one with this size.
  void Shrink(Size size) {
    frames.resize(size.num_frames);
    links.resize(size.num_links);
  }
  void Clear() { Shrink({}); }
  const Frame& at(FrameId frame) const { return frames[static_cast<size_t>(frame)]; }
  const Link& link(int32_t place) const { return links[static_cast<size_t>(place)]; }

  std::vector<Frame> frames;
  std::vector<Link> links;
};

// All places where an automaton can be after some bytes.
struct PositionSet {
  std::vector<Position> positions;  // Without duplicates.
  bool can_end = false;             // The text may end here.
  bool can_leave = false;           // What is not known may follow here.
};

// The functions below subtract what they do from `work`, one for each position, call and link. When it falls below 0,
// they return early, and their results are meaningless.

// Adds what is reached without a byte: the starts of called rules, and what follows rules that have ended. Frames with
// a depth above `max_depth` are not made.
void Close(const Automaton& automaton, int max_depth, Frames* frames, PositionSet* set, int64_t* work);

// Replaces *to by what `byte` leads to from `from`, without closing it.
void Step(const Automaton& automaton, const PositionSet& from, uint8_t byte, PositionSet* to, int64_t* work);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_STACKS_H_
