// SPDX-License-Identifier: Apache-2.0

#include "grammar/matcher.h"

#include <limits>
#include <utility>
#include <vector>

namespace quire::grammar {
namespace {

// Finds the frames that positions lead to. An entry is 0 for these, and kUnknown for all others. [frames]
std::vector<FrameId> FindUsedFrames(const Frames& frames, const std::vector<Position>& positions) {
  std::vector<FrameId> marks(frames.frames.size(), kUnknown);
  std::vector<FrameId> found;
  const auto mark = [&](FrameId frame) {
    if (frame < 0 || marks[static_cast<size_t>(frame)] == 0) return;
    marks[static_cast<size_t>(frame)] = 0;
    found.push_back(frame);
  };
  for (const Position& position : positions) mark(position.frame);
  while (!found.empty()) {
    const FrameId frame = found.back();
    found.pop_back();
    for (int32_t link = frames.at(frame).first_link; link >= 0; link = frames.link(link).other) {
      mark(frames.link(link).next.frame);
    }
  }
  return marks;
}

}  // namespace

Matcher::Matcher(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {
  set_.positions = {{automaton_->start(0), kRootEnds}};
  int64_t work = kMaxAcceptWork;
  Close(*automaton_, kMaxNesting, &frames_, &set_, &work);
  set_.can_end = automaton_->matches_empty();
  Finish(work);
}

bool Matcher::Accept(std::string_view bytes) {
  int64_t unused = 0;
  return Accept(bytes, &unused);
}

// Within a token there is no limit of depth, because the masks of tokens do not know one. It holds at the end.
bool Matcher::Accept(std::string_view bytes, int64_t* caller_work) {
  int64_t work = kMaxAcceptWork;
  PositionSet next;
  for (size_t i = 0; i < bytes.size() && work >= 0; ++i) {
    Step(*automaton_, set_, static_cast<uint8_t>(bytes[i]), &next, &work);
    std::swap(set_, next);
    const bool is_last = i + 1 == bytes.size();
    Close(*automaton_, is_last ? kMaxNesting : std::numeric_limits<int>::max(), &frames_, &set_, &work);
  }
  Finish(work);
  *caller_work -= kMaxAcceptWork - work + static_cast<int64_t>(frames_.links.size());
  return !is_dead();
}

void Matcher::Finish(int64_t work) {
  if (work >= 0) Compact();
  if (work >= 0 && set_.positions.size() <= kMaxPositions && frames_.links.size() <= kMaxLinks) return;
  is_exhausted_ = true;
  set_ = {};
  frames_.Clear();
}

void Matcher::Compact() {
  std::erase_if(set_.positions, [&](const Position& position) { return !automaton_->has_bytes(position.state); });
  if (frames_.frames.empty()) return;
  std::vector<FrameId> place = FindUsedFrames(frames_, set_.positions);
  Frames kept;
  for (size_t i = 0; i < place.size(); ++i) {
    if (place[i] == kUnknown) continue;
    place[i] = static_cast<FrameId>(kept.frames.size());
    kept.frames.push_back({frames_.frames[i].rule, frames_.frames[i].depth, -1});
  }
  const auto moved = [&](FrameId frame) { return frame < 0 ? frame : place[static_cast<size_t>(frame)]; };
  for (size_t i = 0; i < place.size(); ++i) {
    if (place[i] == kUnknown) continue;
    int32_t* end = &kept.frames[static_cast<size_t>(place[i])].first_link;
    for (int32_t at = frames_.frames[i].first_link; at >= 0; at = frames_.link(at).other) {
      const Position next = frames_.link(at).next;
      *end = static_cast<int32_t>(kept.links.size());
      kept.links.push_back({{next.state, moved(next.frame)}, -1});
      end = &kept.links.back().other;
    }
  }
  frames_ = std::move(kept);
  for (Position& position : set_.positions) position.frame = moved(position.frame);
}

}  // namespace quire::grammar
