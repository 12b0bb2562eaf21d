// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/copies_in_flight.h"

#include <algorithm>
#include <utility>

namespace quire {

void CopiesInFlight::Add(StepId step, BlockRef source, BlockRef destination) {
  copies_.push_back({step, std::move(source), std::move(destination)});
  Count(copies_.back(), +1);
}

void CopiesInFlight::DropFrom(StepId step) {
  while (!copies_.empty() && copies_.back().step >= step) {
    Count(copies_.back(), -1);
    copies_.pop_back();
  }
}

void CopiesInFlight::DropUntil(StepId step) {
  while (!copies_.empty() && copies_.front().step <= step) {
    Count(copies_.front(), -1);
    copies_.pop_front();
  }
}

void CopiesInFlight::Clear() {
  for (const Copy& copy : copies_) Count(copy, -1);
  copies_.clear();
}

std::optional<BlockId> CopiesInFlight::FindSource(BlockId destination, StepId step) const {
  if (CountOf(destination) == 0) return std::nullopt;
  const auto it = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    return copy.step == step && copy.destination.id() == destination;
  });
  return it == copies_.end() ? std::nullopt : std::optional(it->source.id());
}

void CopiesInFlight::RepairCounts() {
  std::fill(counts_.begin(), counts_.end(), 0);
  for (const Copy& copy : copies_) Count(copy, +1);
}

void CopiesInFlight::Count(const Copy& copy, int change) {
  counts_[Value(copy.source.id())] += change;
  counts_[Value(copy.destination.id())] += change;
}

}  // namespace quire
