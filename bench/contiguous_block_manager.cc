// SPDX-License-Identifier: Apache-2.0

#include "bench/contiguous_block_manager.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace quire {

int ReservedSlots(Reservation reservation, int prompt_tokens, int output_tokens, int max_context_tokens) {
  const auto output = static_cast<uint32_t>(output_tokens);
  switch (reservation) {
    case Reservation::kMax:
      return max_context_tokens;
    case Reservation::kPowerOfTwo:
      return std::min(max_context_tokens, prompt_tokens + static_cast<int>(std::bit_ceil(output)));
    case Reservation::kOracle:
      return prompt_tokens + output_tokens - 1;
  }
  return 0;
}

ContiguousBlockManager::ContiguousBlockManager(int num_slots) : num_slots_(num_slots), num_unreserved_(num_slots) {
  QUIRE_CHECK_GT(num_slots, 0);
  gaps_.emplace(0, num_slots);
}

bool ContiguousBlockManager::Reserve(int num_slots, int num_sequences) {
  auto runs = std::make_shared<Runs>();
  for (int i = 0; i < num_sequences; ++i) {
    RunRef run = Take(num_slots);
    if (run == nullptr) return false;
    runs->push_back(std::move(run));
  }
  reserved_.push_back(std::move(runs));
  return true;
}

int ContiguousBlockManager::largest_gap() const {
  int largest = 0;
  for (const auto& [first, size] : gaps_) largest = std::max(largest, size);
  return largest;
}

void ContiguousBlockManager::BeginStep(StepId step) {
  while (!copies_.empty() && copies_.back().step >= step) copies_.pop_back();
  step_ = step;
}

bool ContiguousBlockManager::Allocate(SequenceId sequence, int first_written, int num_tokens,
                                      std::vector<BlockCopy>* copies) {
  auto it = holdings_.find(sequence);
  if (it == holdings_.end()) {
    if (reserved_.empty() || reserved_.front()->front()->size < num_tokens) return false;
    Holding holding;
    holding.spare = std::move(reserved_.front());
    reserved_.pop_front();
    holding.run = std::move(holding.spare->front());
    holding.spare->pop_front();
    it = holdings_.emplace(sequence, std::move(holding)).first;
  }
  Holding& holding = it->second;
  if (num_tokens > holding.run->size) return false;
  if (holding.copied_from != nullptr) {
    for (int i = 0; i < std::min(first_written, holding.num_tokens_to_copy); ++i) {
      copies->push_back({BlockId{static_cast<uint32_t>(holding.copied_from->first + i)}, holding.table[i]});
    }
    copies_.push_back({step_, std::exchange(holding.copied_from, nullptr)});
    holding.has_moved = true;
  }
  for (int i = static_cast<int>(holding.table.size()); i < num_tokens; ++i) {
    holding.table.push_back(BlockId{static_cast<uint32_t>(holding.run->first + i)});
    ++num_stored_;
  }
  return true;
}

int ContiguousBlockManager::NumBlocksNeeded(SequenceId sequence, int /*first_written*/, int num_tokens) const {
  return std::max(0, num_tokens - static_cast<int>(Table(sequence).size()));
}

void ContiguousBlockManager::Fork(SequenceId parent, SequenceId child, int num_tokens) {
  QUIRE_CHECK(!holdings_.contains(child)) << child << " has a table";
  const auto it = holdings_.find(parent);
  if (it == holdings_.end()) return;
  const Holding& from = it->second;
  QUIRE_CHECK(!from.spare->empty()) << parent << " has no run reserved for " << child;
  QUIRE_CHECK(from.copied_from == nullptr) << parent << " is not copied yet";
  QUIRE_CHECK_LE(num_tokens, static_cast<int>(from.table.size())) << parent;
  Holding holding;
  holding.run = std::move(from.spare->front());
  from.spare->pop_front();
  holding.spare = from.spare;
  holding.copied_from = from.run;
  holding.num_tokens_to_copy = num_tokens;
  for (int i = 0; i < num_tokens; ++i) {
    holding.table.push_back(BlockId{static_cast<uint32_t>(holding.run->first + i)});
  }
  num_stored_ += num_tokens;
  holdings_.emplace(child, std::move(holding));
}

// A beam that dies leaves its run to the request's next beam.
void ContiguousBlockManager::Free(SequenceId sequence) {
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end()) return;
  Holding& holding = it->second;
  num_stored_ -= static_cast<int>(holding.table.size());
  if (holding.spare.use_count() > 1) holding.spare->push_back(std::move(holding.run));
  holdings_.erase(it);
}

absl::Span<const BlockId> ContiguousBlockManager::Table(SequenceId sequence) const {
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end()) return {};
  return it->second.table;
}

std::optional<int> ContiguousBlockManager::Publish(SequenceId sequence, absl::Span<const TokenId> /*tokens*/,
                                                   int /*num_tokens*/) {
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end() || !std::exchange(it->second.has_moved, false)) return std::nullopt;
  return 0;
}

void ContiguousBlockManager::OnStepCommitted(StepId step) {
  while (!copies_.empty() && copies_.front().step <= step) copies_.pop_front();
}

void ContiguousBlockManager::OnStepsAbandoned() {
  QUIRE_CHECK(holdings_.empty()) << holdings_.size() << " sequences lose their runs";
  copies_.clear();
  step_ = StepId{0};
}

ContiguousBlockManager::RunRef ContiguousBlockManager::Take(int size) {
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& entry) { return entry.second >= size; });
  if (gap == gaps_.end()) return nullptr;
  const auto [first, gap_size] = *gap;
  gaps_.erase(gap);
  if (gap_size > size) gaps_.emplace(first + size, gap_size - size);
  num_unreserved_ -= size;
  return RunRef(new Run{first, size}, [this](const Run* run) {
    GiveBack(*run);
    delete run;
  });
}

void ContiguousBlockManager::GiveBack(const Run& run) {
  num_unreserved_ += run.size;
  auto [it, is_new] = gaps_.emplace(run.first, run.size);
  QUIRE_CHECK(is_new) << "slot " << run.first;
  if (const auto next = std::next(it); next != gaps_.end() && next->first == it->first + it->second) {
    it->second += next->second;
    gaps_.erase(next);
  }
  if (it == gaps_.begin()) return;
  if (const auto previous = std::prev(it); previous->first + previous->second == it->first) {
    previous->second += it->second;
    gaps_.erase(it);
  }
}

}  // namespace quire
