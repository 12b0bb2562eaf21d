// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/global_race_checker.h"

#include <algorithm>

namespace quire::simt {

void GlobalRaceChecker::BeginBlock(int block) {
  block_ = block;
  order_.BeginBlock(block);
}

template <typename Visit>
void GlobalRaceChecker::ForEach(const void* p, size_t bytes, Visit visit) {
  uintptr_t address = reinterpret_cast<uintptr_t>(p);
  while (bytes > 0) {
    const size_t in_page = address % kPageBytes;
    const size_t here = std::min<size_t>(bytes, kPageBytes - in_page);
    std::unique_ptr<HistoryMap<History>>& page = pages_[address / kPageBytes];
    if (page == nullptr) page = std::make_unique<HistoryMap<History>>(kPageBytes);
    page->ForEach(in_page, here, [&](History& history) {
      if (history.owner != block_) TakeOver(&history);
      visit(history);
    });
    address += here;
    bytes -= here;
  }
}

// The running block is the first one after `owner`. Adds the accesses of `owner` to the accesses of earlier blocks.
void GlobalRaceChecker::TakeOver(History* history) const {
  const auto join = [&](const AccessSummary& own, bool keeps_earlier, BlockAccess* all) {
    if (own.stamp == 0) return;
    const bool several = keeps_earlier && all->block >= 0;
    *all = {own.place, history->owner, own.stamp, own.thread, several};
  };
  // A plain write either is ordered after the earlier accesses or has been reported, so it replaces them. Atomics and
  // reads are added to them.
  join(history->own.writes, history->own.is_atomic && history->is_atomic, &history->writes);
  if (history->own.writes.stamp != 0) history->is_atomic = history->own.is_atomic;
  join(history->own.reads, true, &history->reads);
  history->own = AccessHistory();
  history->owner = block_;
}

void GlobalRaceChecker::Report(const History& history, bool with_write, const void* p, Operation operation,
                               const Accessor& by) {
  const AccessSummary& own = with_write ? history.own.writes : history.own.reads;
  const BlockAccess& others = with_write ? history.writes : history.reads;
  const bool is_own = own.Collides(by, *clock_);
  const Place other = is_own ? own.place : others.place;
  log_->Report(ProblemKind::kGlobalRace, {by.place, block_, by.thread, other}, [&] {
    const int block = is_own ? block_ : others.block;
    return std::string(Name(operation)) + " at address " + std::to_string(reinterpret_cast<uintptr_t>(p)) +
           " collides with " + (with_write ? "a write" : "a read") + " by block " + std::to_string(block) + " at " +
           ToString(other);
  });
}

void GlobalRaceChecker::OnRead(const void* p, size_t bytes, Operation operation, const Accessor& by) {
  ForEach(p, bytes, [&](History& history) {
    if (history.own.writes.Collides(by, *clock_) || !order_.ComesAfter(history.writes)) {
      Report(history, true, p, operation, by);
    }
    history.own.reads.Add(by, *clock_);
  });
}

void GlobalRaceChecker::OnWrite(const void* p, size_t bytes, Operation operation, const Accessor& by) {
  ForEach(p, bytes, [&](History& history) {
    if (history.own.writes.Collides(by, *clock_) || !order_.ComesAfter(history.writes)) {
      Report(history, true, p, operation, by);
    } else if (history.own.reads.Collides(by, *clock_) || !order_.ComesAfter(history.reads)) {
      Report(history, false, p, operation, by);
    }
    history.own.writes.Set(by, *clock_);
    history.own.is_atomic = false;
  });
}

void GlobalRaceChecker::OnAtomic(const void* p, size_t bytes, const Accessor& by) {
  ForEach(p, bytes, [&](History& history) {
    const bool own_race = !history.own.is_atomic && history.own.writes.Collides(by, *clock_);
    if (own_race || (!history.is_atomic && !order_.ComesAfter(history.writes))) {
      Report(history, true, p, Operation::kAtomic, by);
    } else if (history.own.reads.Collides(by, *clock_) || !order_.ComesAfter(history.reads)) {
      Report(history, false, p, Operation::kAtomic, by);
    }
    history.own.writes.Add(by, *clock_);
    history.own.is_atomic = true;
  });
  order_.OnAtomic(p, by.thread);
}

}  // namespace quire::simt
