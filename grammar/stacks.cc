// SPDX-License-Identifier: Apache-2.0

#include "grammar/stacks.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace quire::grammar {
namespace {

// Few entries are searched one by one, and more with a hash table.
constexpr size_t kFew = 16;

// Adds positions that are not there yet.
class PositionAdder {
 public:
  explicit PositionAdder(std::vector<Position>* positions) : positions_(positions) {}

  void Add(Position position) {
    if (positions_->size() <= kFew) {
      if (std::find(positions_->begin(), positions_->end(), position) != positions_->end()) return;
    } else {
      if (index_.empty()) index_.insert(positions_->begin(), positions_->end());
      if (!index_.insert(position).second) return;
    }
    positions_->push_back(position);
  }

 private:
  std::vector<Position>* const positions_;
  absl::flat_hash_set<Position> index_;  // Empty while there are few.
};

// Adds links to the frames of the rules that are called at one place.
class FrameAdder {
 public:
  explicit FrameAdder(Frames* frames) : frames_(frames), first_(frames->frames.size()) {}

  FrameId Add(RuleId rule, Position next, int depth) {
    const FrameId id = FrameOf(rule, depth);
    Frames::Frame& frame = frames_->frames[static_cast<size_t>(id)];
    frame.depth = std::min(frame.depth, depth);
    frames_->links.push_back({next, frame.first_link});
    frame.first_link = static_cast<int32_t>(frames_->links.size()) - 1;
    return id;
  }

 private:
  FrameId FrameOf(RuleId rule, int depth) {
    std::vector<Frames::Frame>& frames = frames_->frames;
    const auto new_id = static_cast<FrameId>(frames.size());
    if (frames.size() - first_ <= kFew) {
      for (size_t i = first_; i < frames.size(); ++i) {
        if (frames[i].rule == rule) return static_cast<FrameId>(i);
      }
    } else {
      if (index_.empty()) {
        for (size_t i = first_; i < frames.size(); ++i) index_[frames[i].rule] = static_cast<FrameId>(i);
      }
      const auto [entry, is_new] = index_.try_emplace(rule, new_id);
      if (!is_new) return entry->second;
    }
    frames.push_back({rule, depth, -1});
    return new_id;
  }

  Frames* const frames_;
  const size_t first_;                          // The first frame of this place.
  absl::flat_hash_map<RuleId, FrameId> index_;  // Empty while there are few.
};

}  // namespace

// A rule that is called here ends only behind a byte. So all links of a frame are there before the rule ends.
void Close(const Automaton& automaton, int max_depth, Frames* frames, PositionSet* set, int64_t* work) {
  set->can_end = set->can_leave = false;
  PositionAdder positions(&set->positions);
  FrameAdder called(frames);
  for (size_t i = 0; i < set->positions.size() && --*work >= 0; ++i) {
    const auto [state, frame] = set->positions[i];
    if (automaton.is_final(state)) {
      if (frame == kRootEnds) set->can_end = true;
      if (frame == kUnknown) set->can_leave = true;
      for (int32_t link = frame < 0 ? -1 : frames->at(frame).first_link; link >= 0; link = frames->link(link).other) {
        positions.Add(frames->link(link).next);
        --*work;
      }
    }
    for (const Automaton::Call& call : automaton.calls(state)) {
      --*work;
      FrameId after = frame;
      if (call.next != kNoState) {
        const int depth = frame < 0 ? 1 : frames->at(frame).depth + 1;
        if (depth > max_depth) continue;
        after = called.Add(call.rule, {call.next, frame}, depth);
      }
      positions.Add({automaton.start(call.rule), after});
    }
  }
}

void Step(const Automaton& automaton, const PositionSet& from, uint8_t byte, PositionSet* to, int64_t* work) {
  to->positions.clear();
  PositionAdder positions(&to->positions);
  *work -= static_cast<int64_t>(from.positions.size());
  for (const Position& position : from.positions) {
    const StateId next = automaton.Next(position.state, byte);
    if (next != kNoState) positions.Add({next, position.frame});
  }
}

}  // namespace quire::grammar
