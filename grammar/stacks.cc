// SPDX-License-Identifier: Apache-2.0

#include "grammar/stacks.h"

#include <algorithm>

namespace quire::grammar {
namespace {

void AddPosition(Position position, size_t limit, std::vector<Position>* positions) {
  if (std::find(positions->begin(), positions->end(), position) != positions->end()) return;
  if (positions->size() < limit) positions->push_back(position);
}

// Returns the frame, which is one of those from `first` on if it is there already.
FrameId FrameFor(Position next, size_t first, int depth, Frames* frames) {
  for (size_t i = first; i < frames->size(); ++i) {
    if ((*frames)[i].next == next) return static_cast<FrameId>(i);
  }
  frames->push_back({next, depth});
  return static_cast<FrameId>(frames->size()) - 1;
}

}  // namespace

void Close(const Automaton& automaton, int max_depth, Frames* frames, PositionSet* set) {
  set->can_end = set->can_leave = false;
  const size_t first = frames->size();
  for (size_t i = 0; i < set->positions.size(); ++i) {
    const auto [state, frame] = set->positions[i];
    if (automaton.is_final(state)) {
      if (frame == kRootEnds) {
        set->can_end = true;
      } else if (frame == kUnknown) {
        set->can_leave = true;
      } else {
        AddPosition((*frames)[static_cast<size_t>(frame)].next, kMaxPositions, &set->positions);
      }
    }
    for (const Automaton::Call& call : automaton.calls(state)) {
      FrameId after = frame;
      if (call.next != kNoState) {
        const int depth = frame < 0 ? 1 : (*frames)[static_cast<size_t>(frame)].depth + 1;
        if (depth > max_depth) continue;
        after = FrameFor({call.next, frame}, first, depth, frames);
      }
      AddPosition({automaton.start(call.rule), after}, kMaxPositions, &set->positions);
    }
  }
}

void Step(const Automaton& automaton, const PositionSet& from, uint8_t byte, PositionSet* to) {
  to->positions.clear();
  for (const Position& position : from.positions) {
    const StateId next = automaton.Next(position.state, byte);
    if (next != kNoState) AddPosition({next, position.frame}, kMaxSteppedPositions, &to->positions);
  }
}

}  // namespace quire::grammar
