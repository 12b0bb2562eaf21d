// SPDX-License-Identifier: Apache-2.0

#include "grammar/matcher.h"

#include <limits>
#include <utility>
#include <vector>

namespace quire::grammar {

Matcher::Matcher(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {
  set_.positions = {{automaton_->start(0), kRootEnds}};
  Close(*automaton_, kMaxNesting, &frames_, &set_);
  Compact();
}

// Within a token there is no limit of depth, because the masks of tokens do not know one. It holds at the end.
bool Matcher::Accept(std::string_view bytes) {
  PositionSet next;
  for (size_t i = 0; i < bytes.size(); ++i) {
    Step(*automaton_, set_, static_cast<uint8_t>(bytes[i]), &next);
    std::swap(set_, next);
    const bool is_last = i + 1 == bytes.size();
    Close(*automaton_, is_last ? kMaxNesting : std::numeric_limits<int>::max(), &frames_, &set_);
  }
  Compact();
  return !is_dead();
}

void Matcher::Compact() {
  std::erase_if(set_.positions, [&](const Position& position) { return !automaton_->has_bytes(position.state); });
  std::vector<FrameId> place(frames_.size(), kUnknown);
  for (const Position& position : set_.positions) {
    for (FrameId frame = position.frame; frame >= 0 && place[static_cast<size_t>(frame)] == kUnknown;
         frame = frames_[static_cast<size_t>(frame)].next.frame) {
      place[static_cast<size_t>(frame)] = 0;
    }
  }
  size_t kept = 0;
  const auto moved = [&](FrameId frame) { return frame < 0 ? frame : place[static_cast<size_t>(frame)]; };
  for (size_t i = 0; i < frames_.size(); ++i) {
    if (place[i] == kUnknown) continue;
    place[i] = static_cast<FrameId>(kept);
    frames_[kept] = frames_[i];
    frames_[kept].next.frame = moved(frames_[kept].next.frame);
    ++kept;
  }
  frames_.resize(kept);
  for (Position& position : set_.positions) position.frame = moved(position.frame);
}

}  // namespace quire::grammar
