// What others see of a PagedBlockManager, and the recount of all that it counts.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {
namespace {

using Kind = CountDifference::Kind;

void Compare(Kind kind, int block, int counted, int recomputed, BlockAudit* audit) {
  if (counted == recomputed) return;
  ++audit->num_differences;
  if (audit->differences.size() >= BlockAudit::kMaxDifferences) return;
  audit->differences.push_back({kind, BlockId{static_cast<uint32_t>(block)}, counted, recomputed});
}

std::string Describe(const CountDifference& difference) {
  const auto text = [&](const char* what, const char* of) {
    return absl::StrCat(what, " ", Value(difference.block), " counts ", difference.counted, " ", of, " and has ",
                        difference.recomputed);
  };
  switch (difference.kind) {
    case Kind::kReferences:
      return text("block", "references");
    case Kind::kCopies:
      return text("block", "copies");
    case Kind::kHostReferences:
      return text("host block", "references");
    case Kind::kCached:
      return text("block", "caches");
  }
  return "";
}

}  // namespace

void PagedBlockManager::CopyStates(std::string* states) const {
  static_assert(sizeof(BlockState) == 1);
  const absl::Span<const BlockState> shown = pool_.states();
  states->assign(reinterpret_cast<const char*>(shown.data()), shown.size());
  for (const auto& [block, num_pins] : pins_.blocks()) {
    (*states)[Value(block)] = static_cast<char>(BlockState::kPinned);
  }
}

BlockHolders PagedBlockManager::HoldersOf(BlockId block) const {
  BlockHolders holders{.num_references = pool_.ref_count(block),
                       .num_pins = pins_.NumPins(block),
                       .num_copies = num_copies_[Value(block)],
                       .is_cached = tree_.Contains(block)};
  const int num_owners = pool_.num_owners(block);
  if (holders.num_pins > 0) {
    holders.state = BlockState::kPinned;
  } else if (num_owners > 0) {
    holders.state = num_owners > 1 ? BlockState::kShared : BlockState::kUsed;
  } else if (holders.is_cached) {
    holders.state = BlockState::kEvictable;
  }
  if (!holders.is_cached) return holders;
  holders.depth = tree_.depth(block);
  if (!hashes_.empty()) holders.prefix = hashes_[Value(block)];
  holders.age_steps = Value(cache_step_) - Value(tree_.last_step(block));
  return holders;
}

absl::Span<const BlockId> PagedBlockManager::HostTable(SequenceId sequence) const {
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end() || !it->second.is_swapped) return {};
  return it->second.table.ids();
}

PagedBlockManager::Recount PagedBlockManager::CountAll() const {
  Recount recount;
  recount.copies.resize(pool_.num_blocks());
  recount.host_references.resize(host_pool_.num_blocks());
  for (const CopyInFlight& copy : copies_) {
    ++recount.copies[Value(copy.source.id())];
    ++recount.copies[Value(copy.destination.id())];
  }
  recount.references = recount.copies;
  for (const SwapInFlight& swap : swaps_) ++recount.host_references[Value(swap.host.id())];
  for (const auto& [sequence, holding] : holdings_) {
    std::vector<int>& counts = holding.is_swapped ? recount.host_references : recount.references;
    for (const BlockId block : holding.table.ids()) ++counts[Value(block)];
  }
  for (const auto& [block, num_pins] : pins_.blocks()) recount.references[Value(block)] += num_pins;
  for (int i = 0; i < pool_.num_blocks(); ++i) {
    recount.references[i] += tree_.Contains(BlockId{static_cast<uint32_t>(i)});
  }
  return recount;
}

void PagedBlockManager::CompareCounts(const Recount& recount, BlockAudit* audit) const {
  audit->num_blocks = pool_.num_blocks() + host_pool_.num_blocks();
  for (int i = 0; i < pool_.num_blocks(); ++i) {
    const BlockId block{static_cast<uint32_t>(i)};
    audit->num_references += recount.references[i];
    Compare(Kind::kReferences, i, pool_.ref_count(block), recount.references[i], audit);
    Compare(Kind::kCopies, i, num_copies_[i], recount.copies[i], audit);
    Compare(Kind::kCached, i, pool_.is_cached(block), tree_.Contains(block), audit);
  }
  for (int i = 0; i < host_pool_.num_blocks(); ++i) {
    audit->num_references += recount.host_references[i];
    const int counted = host_pool_.ref_count(BlockId{static_cast<uint32_t>(i)});
    Compare(Kind::kHostReferences, i, counted, recount.host_references[i], audit);
  }
}

absl::Status PagedBlockManager::CheckTables() const {
  int64_t table_entries = 0;
  int64_t live_tokens = 0;
  for (const auto& [sequence, holding] : holdings_) {
    if (holding.num_tokens > holding.table.num_slots()) {
      return absl::InternalError(
          absl::StrCat("a table of ", holding.table.num_slots(), " slots counts ", holding.num_tokens, " tokens"));
    }
    if (holding.is_swapped) continue;
    table_entries += holding.table.num_blocks();
    live_tokens += holding.num_tokens;
  }
  if (table_entries == num_table_entries_ && live_tokens == num_live_tokens_) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("tables have ", table_entries, " entries for ", live_tokens,
                                          " tokens, counted ", num_table_entries_, " for ", num_live_tokens_));
}

BlockAudit PagedBlockManager::Audit() const {
  BlockAudit audit;
  CompareCounts(CountAll(), &audit);
  audit.contradiction.Update(pool_.CheckIntegrity());
  audit.contradiction.Update(host_pool_.CheckIntegrity());
  audit.contradiction.Update(tree_.CheckIntegrity());
  audit.contradiction.Update(CheckTables());
  return audit;
}

BlockAudit PagedBlockManager::Repair() {
  BlockAudit found = Audit();
  if (found.num_differences == 0) return found;
  Recount recount = CountAll();
  std::vector<BlockPool::Recount> blocks(pool_.num_blocks());
  for (int i = 0; i < pool_.num_blocks(); ++i) {
    const bool is_cached = tree_.Contains(BlockId{static_cast<uint32_t>(i)});
    blocks[i] = {recount.references[i] - is_cached, is_cached};
  }
  pool_.Repair(blocks);
  std::vector<BlockPool::Recount> host_blocks(host_pool_.num_blocks());
  for (int i = 0; i < host_pool_.num_blocks(); ++i) host_blocks[i].num_owners = recount.host_references[i];
  host_pool_.Repair(host_blocks);
  num_copies_ = std::move(recount.copies);
  return found;
}

absl::Status PagedBlockManager::CheckIntegrity() const {
  const BlockAudit audit = Audit();
  QUIRE_RETURN_IF_ERROR(audit.contradiction);
  if (audit.differences.empty()) return absl::OkStatus();
  return absl::InternalError(Describe(audit.differences.front()));
}

}  // namespace quire
