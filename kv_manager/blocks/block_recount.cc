// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/block_recount.h"

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

using Kind = CountDifference::Kind;

void CompareCount(Kind kind, int block, int counted, int recomputed, BlockAudit* audit) {
  if (counted == recomputed) return;
  ++audit->num_differences;
  if (audit->differences.size() >= BlockAudit::kMaxDifferences) return;
  audit->differences.push_back({kind, BlockId{static_cast<uint32_t>(block)}, counted, recomputed});
}

}  // namespace

BlockRecount::BlockRecount(int num_blocks, int num_host_blocks)
    : references_(num_blocks), copies_(num_blocks), is_cached_(num_blocks), host_references_(num_host_blocks) {}

void BlockRecount::AddTable(const BlockTable& table, int num_tokens, bool is_swapped) {
  if (num_tokens > table.num_slots()) {
    overfull_.Update(
        absl::InternalError(absl::StrCat("a table of ", table.num_slots(), " slots counts ", num_tokens, " tokens")));
  }
  std::vector<int>& references = is_swapped ? host_references_ : references_;
  for (const BlockId block : table.ids()) ++references[Value(block)];
  if (is_swapped) return;
  table_entries_ += table.num_blocks();
  live_tokens_ += num_tokens;
}

void BlockRecount::AddSheets(const SheetTable& table, bool is_swapped) {
  std::vector<int>& references = is_swapped ? host_references_ : references_;
  for (const BlockId block : table.view().blocks) ++references[Value(block)];
}

void BlockRecount::AddCopies(const CopiesInFlight& copies) {
  for (const CopiesInFlight::Copy& copy : copies.copies()) {
    for (const BlockId block : {copy.source.id(), copy.destination.id()}) {
      ++copies_[Value(block)];
      ++references_[Value(block)];
    }
  }
}

void BlockRecount::AddPins(const PrefixPins& pins) {
  for (const auto& [block, num_pins] : pins.blocks()) references_[Value(block)] += num_pins;
}

void BlockRecount::AddCache(const PrefixTree& tree) {
  for (size_t i = 0; i < references_.size(); ++i) {
    is_cached_[i] = tree.Contains(BlockId{static_cast<uint32_t>(i)});
    references_[i] += is_cached_[i];
  }
}

BlockAudit BlockRecount::Compare(const BlockPool& pool, const BlockPool& host_pool,
                                 const CopiesInFlight& copies) const {
  BlockAudit audit;
  audit.num_blocks = pool.num_blocks() + host_pool.num_blocks();
  for (int i = 0; i < pool.num_blocks(); ++i) {
    const BlockId block{static_cast<uint32_t>(i)};
    audit.num_references += references_[i];
    CompareCount(Kind::kReferences, i, pool.ref_count(block), references_[i], &audit);
    CompareCount(Kind::kCopies, i, copies.CountOf(block), copies_[i], &audit);
    CompareCount(Kind::kCached, i, pool.is_cached(block), is_cached_[i], &audit);
  }
  for (int i = 0; i < host_pool.num_blocks(); ++i) {
    audit.num_references += host_references_[i];
    const int counted = host_pool.ref_count(BlockId{static_cast<uint32_t>(i)});
    CompareCount(Kind::kHostReferences, i, counted, host_references_[i], &audit);
  }
  return audit;
}

absl::Status BlockRecount::CheckTables(int64_t table_entries, int64_t live_tokens) const {
  if (!overfull_.ok()) return overfull_;
  if (table_entries == table_entries_ && live_tokens == live_tokens_) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("tables have ", table_entries_, " entries for ", live_tokens_,
                                          " tokens, counted ", table_entries, " for ", live_tokens));
}

void BlockRecount::Repair(BlockPool* pool, BlockPool* host_pool) const {
  std::vector<BlockPool::Recount> blocks(references_.size());
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = {references_[i] - is_cached_[i], is_cached_[i]};
  pool->Repair(blocks);
  std::vector<BlockPool::Recount> host_blocks(host_references_.size());
  for (size_t i = 0; i < host_blocks.size(); ++i) host_blocks[i].num_owners = host_references_[i];
  host_pool->Repair(host_blocks);
}

}  // namespace quire
