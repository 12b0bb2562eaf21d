#include "kv_manager/paged_block_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace quire {

PagedBlockManager::PagedBlockManager(int num_blocks, int block_size)
    : block_size_(block_size), pool_(num_blocks), num_copies_(num_blocks, 0) {
  QUIRE_CHECK_GT(block_size, 0);
}

void PagedBlockManager::BeginStep(StepId step) {
  while (!copies_.empty() && copies_.back().step >= step) {
    CountCopy(copies_.back(), -1);
    copies_.pop_back();
  }
  step_ = step;
}

bool PagedBlockManager::Allocate(SequenceId sequence, int first_written, int num_tokens,
                                 std::vector<BlockCopy>* copies) {
  if (NumBlocksNeeded(sequence, first_written, num_tokens) > pool_.num_free()) return false;
  BlockTable& table = tables_.try_emplace(sequence, block_size_).first->second;
  const int num_blocks = NumBlocksFor(num_tokens, block_size_);
  const int first_block = first_written / block_size_;
  for (int i = first_block; i < std::min(num_blocks, table.num_blocks()); ++i) {
    const bool keeps_tokens = i == first_block && first_written % block_size_ != 0;
    if (IsShared(table.ids()[i])) CopyOnWrite(&table, i, keeps_tokens, copies);
  }
  while (table.num_blocks() < num_blocks) table.Append(pool_.Take());
  return true;
}

int PagedBlockManager::NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const {
  QUIRE_CHECK_GE(first_written, 0);
  QUIRE_CHECK_LE(first_written, num_tokens);
  const absl::Span<const BlockId> table = Table(sequence);
  const int held = static_cast<int>(table.size());
  const int num_blocks = NumBlocksFor(num_tokens, block_size_);
  int needed = std::max(0, num_blocks - held);
  for (int i = first_written / block_size_; i < std::min(num_blocks, held); ++i) {
    if (IsShared(table[i])) ++needed;
  }
  return needed;
}

void PagedBlockManager::Fork(SequenceId parent, SequenceId child) {
  QUIRE_CHECK(!tables_.contains(child)) << child << " has a table";
  auto it = tables_.find(parent);
  if (it == tables_.end()) return;
  BlockTable table = it->second.Share();
  tables_.emplace(child, std::move(table));
}

void PagedBlockManager::Free(SequenceId sequence) {
  tables_.erase(sequence);
}

absl::Span<const BlockId> PagedBlockManager::Table(SequenceId sequence) const {
  auto it = tables_.find(sequence);
  return it == tables_.end() ? absl::Span<const BlockId>() : it->second.ids();
}

void PagedBlockManager::OnStepCommitted(StepId step) {
  while (!copies_.empty() && copies_.front().step <= step) {
    CountCopy(copies_.front(), -1);
    copies_.pop_front();
  }
}

void PagedBlockManager::OnStepsAbandoned() {
  for (const CopyInFlight& copy : copies_) CountCopy(copy, -1);
  copies_.clear();
  step_ = StepId{0};
}

BlockCounts PagedBlockManager::counts() const {
  return {pool_.num_blocks(), pool_.num_free(), pool_.num_used(), pool_.num_shared()};
}

absl::Status PagedBlockManager::CheckIntegrity() const {
  QUIRE_RETURN_IF_ERROR(pool_.CheckIntegrity());
  std::vector<int> by_copies(pool_.num_blocks(), 0);
  for (const CopyInFlight& copy : copies_) {
    ++by_copies[Value(copy.source.id())];
    ++by_copies[Value(copy.destination.id())];
  }
  std::vector<int> references = by_copies;
  for (const auto& [sequence, table] : tables_) {
    for (BlockId block : table.ids()) ++references[Value(block)];
  }
  for (int i = 0; i < pool_.num_blocks(); ++i) {
    const BlockId block{static_cast<uint32_t>(i)};
    if (pool_.ref_count(block) != references[i] || num_copies_[i] != by_copies[i]) {
      return absl::InternalError(absl::StrCat("block ", i, " counts ", pool_.ref_count(block), " references and has ",
                                              references[i], ", counts ", num_copies_[i], " copies and has ",
                                              by_copies[i]));
    }
  }
  return absl::OkStatus();
}

// A copy from a block that another copy of the same step fills would depend on their order.
bool PagedBlockManager::IsFilledByThisStep(BlockId block) const {
  if (num_copies_[Value(block)] == 0) return false;
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const CopyInFlight& copy) { return copy.step == step_ && copy.destination.id() == block; });
}

void PagedBlockManager::CopyOnWrite(BlockTable* table, int index, bool keeps_tokens, std::vector<BlockCopy>* copies) {
  BlockRef fresh = pool_.Take();
  QUIRE_CHECK(fresh) << "Allocate counted the blocks it needs";
  if (!keeps_tokens) {
    table->Replace(index, std::move(fresh));
    return;
  }
  BlockRef destination = fresh.Share();
  BlockRef source = table->Replace(index, std::move(fresh));
  QUIRE_CHECK(!IsFilledByThisStep(source.id())) << source.id() << " is filled by a copy of " << step_;
  copies->push_back({source.id(), destination.id()});
  copies_.push_back({step_, std::move(source), std::move(destination)});
  CountCopy(copies_.back(), +1);
}

void PagedBlockManager::CountCopy(const CopyInFlight& copy, int change) {
  num_copies_[Value(copy.source.id())] += change;
  num_copies_[Value(copy.destination.id())] += change;
}

}  // namespace quire
