// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/paged_block_manager.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/num_blocks.h"
#include "base/status.h"
#include "scheduler/tenant_shares.h"

namespace quire {

PagedBlockManager::PagedBlockManager(const PagedBlockManagerOptions& options)
    : options_(options),
      groups_(options.block_size, options.groups, options.max_slice_tokens),
      has_prefix_cache_(options.has_prefix_cache && groups_.size() == 1),
      pool_(options.num_blocks),
      host_pool_(options.num_host_blocks),
      tree_(options.block_size, &pool_),
      pins_(&tree_, options.max_pinned_blocks),
      promises_(options.block_size),
      copies_(options.num_blocks),
      hashes_(options.index == nullptr ? 0 : options.num_blocks, 0) {
  QUIRE_CHECK_EQ(groups_.group(0).window_tokens, 0);
}

void PagedBlockManager::BeginStep(StepId step) {
  copies_.DropFrom(step);
  while (!swaps_.empty() && swaps_.back().step >= step) swaps_.pop_back();
  step_ = step;
  cache_step_ = StepId{Value(cache_step_) + 1};
}

template <typename Replace>
void PagedBlockManager::CopyOnWrite(const Replace& replace, bool keeps_tokens, std::vector<BlockCopy>* copies) {
  BlockRef fresh = Take();
  if (!keeps_tokens) {
    replace(std::move(fresh));
    return;
  }
  BlockRef destination = fresh.Share();
  BlockRef source = replace(std::move(fresh));
  // The copies of a step have no order, so a copy must not read a block that another copy of the step fills.
  QUIRE_CHECK(!copies_.FindSource(source.id(), step_).has_value())
      << source.id() << " is filled by a copy of " << step_;
  copies->push_back({source.id(), destination.id()});
  copies_.Add(step_, std::move(source), std::move(destination));
}

bool PagedBlockManager::Allocate(SequenceId sequence, int first_written, int num_tokens,
                                 std::vector<BlockCopy>* copies) {
  if (NumBlocksNeeded(sequence, first_written, num_tokens) > num_free_blocks()) return false;
  Holding& holding = HoldingOf(sequence);
  for (size_t i = 0; i < holding.sheets.size(); ++i) {
    holding.sheets[i].ReleaseBefore(SheetsFor(static_cast<int>(i) + 1, first_written, num_tokens).first);
  }
  BlockTable& table = holding.table;
  const int num_blocks = NumBlocksFor(num_tokens, block_size());
  const int first_block = first_written / block_size();
  for (int i = first_block; i < std::min(num_blocks, table.num_blocks()); ++i) {
    if (!IsProtected(holding, i)) continue;
    const bool keeps_tokens = i == first_block && first_written % block_size() != 0;
    CopyOnWrite([&](BlockRef fresh) { return table.Replace(i, std::move(fresh)); }, keeps_tokens, copies);
  }
  Uncount(holding);
  while (table.num_blocks() < num_blocks) table.Append(Take());
  holding.num_tokens = num_tokens;
  Count(holding);
  for (size_t i = 0; i < holding.sheets.size(); ++i) {
    AllocateSheets(static_cast<int>(i) + 1, &holding.sheets[i], first_written, num_tokens, copies);
  }
  return true;
}

PagedBlockManager::SheetRange PagedBlockManager::SheetsFor(int group, int first_written, int num_tokens) const {
  const int first = groups_.FirstSheet(group, first_written);
  const auto most = static_cast<int>(groups_.MaxLiveSheets(group, num_tokens));
  return {first, std::min(NumBlocksFor(num_tokens, block_size()), first + most)};
}

int PagedBlockManager::NumSheetBlocksNeeded(int group, const SheetTable& table, int first_written,
                                            int num_tokens) const {
  const SheetRange range = SheetsFor(group, first_written, num_tokens);
  const int width = groups_.group(group).blocks_per_sheet;
  const int first_sheet = first_written / block_size();
  int needed = std::max(0, range.end - (table.is_empty() ? first_sheet : table.end())) * width;
  for (int sheet = std::max(first_sheet, table.first()); sheet < std::min(range.end, table.end()); ++sheet) {
    if (IsProtected(table, sheet)) needed += width;
  }
  for (int sheet = table.first(); sheet < std::min(range.first, table.end()); ++sheet) {
    for (int part = 0; part < width; ++part) needed -= pool_.ref_count(table.block(sheet, part).id()) == 1 ? 1 : 0;
  }
  return needed;
}

void PagedBlockManager::AllocateSheets(int group, SheetTable* table, int first_written, int num_tokens,
                                       std::vector<BlockCopy>* copies) {
  const SheetRange range = SheetsFor(group, first_written, num_tokens);
  const int first_sheet = first_written / block_size();
  for (int sheet = std::max(first_sheet, table->first()); sheet < std::min(range.end, table->end()); ++sheet) {
    if (!IsProtected(*table, sheet)) continue;
    const bool keeps_tokens = sheet == first_sheet && first_written % block_size() != 0;
    for (int part = 0; part < table->blocks_per_sheet(); ++part) {
      CopyOnWrite([&](BlockRef fresh) { return table->Replace(sheet, part, std::move(fresh)); }, keeps_tokens, copies);
    }
  }
  // A sequence that waits gets the sheets before when its wait ends (ShareSheets).
  if (table->is_empty()) {
    QUIRE_CHECK(first_sheet == range.first || first_written % block_size() == 0) << first_written;
    table->BeginAt(first_sheet);
  }
  while (table->end() < range.end) {
    for (int part = 0; part < table->blocks_per_sheet(); ++part) table->Append(Take());
  }
}

int PagedBlockManager::NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const {
  QUIRE_CHECK_GE(first_written, 0);
  QUIRE_CHECK_LE(first_written, num_tokens);
  const int num_blocks = NumBlocksFor(num_tokens, block_size());
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end()) {
    int needed = num_blocks;
    for (int group = 1; group < groups_.size(); ++group) {
      needed += NumSheetBlocksNeeded(group, SheetTable(1), first_written, num_tokens);
    }
    return needed;
  }
  const int held = it->second.table.num_blocks();
  int needed = std::max(0, num_blocks - held);
  for (int i = first_written / block_size(); i < std::min(num_blocks, held); ++i) {
    if (IsProtected(it->second, i)) ++needed;
  }
  for (int group = 1; group < groups_.size(); ++group) {
    needed += NumSheetBlocksNeeded(group, it->second.sheets[group - 1], first_written, num_tokens);
  }
  return needed;
}

void PagedBlockManager::Fork(SequenceId parent, SequenceId child, int num_tokens) {
  QUIRE_CHECK(!holdings_.contains(child)) << child << " has a table";
  const auto it = holdings_.find(parent);
  if (it == holdings_.end()) return;
  Holding& from = it->second;
  const int num_blocks = NumBlocksFor(num_tokens, block_size());
  QUIRE_CHECK_LE(num_blocks, from.table.num_blocks()) << parent;
  Holding holding = NewHolding();
  holding.table = from.table.Share(num_blocks);
  holding.num_tokens = num_tokens;
  holding.is_swapped = from.is_swapped;
  holding.is_published = from.is_published;
  holding.salt = from.salt;
  holding.num_published_blocks = std::min(from.num_published_blocks, num_tokens / block_size());
  holding.published_in = from.published_in;
  from.num_lent_blocks = std::max(from.num_lent_blocks, num_tokens / block_size());
  Count(holding);
  holdings_.emplace(child, std::move(holding));
}

// A sequence that waits has the sheets from `num_tokens` on. Another one has none.
void PagedBlockManager::ShareSheets(SequenceId parent, SequenceId child, int num_tokens) {
  const auto from = holdings_.find(parent), to = holdings_.find(child);
  if (from == holdings_.end() || to == holdings_.end()) return;
  for (int group = 1; group < groups_.size(); ++group) {
    const SheetTable& table = from->second.sheets[group - 1];
    SheetTable& shared = to->second.sheets[group - 1];
    const int first = groups_.FirstSheet(group, num_tokens);
    if (shared.is_empty()) {
      shared = table.Share(first, NumBlocksFor(num_tokens, block_size()));
    } else {
      shared.ShareBefore(table, first);
    }
  }
}

void PagedBlockManager::Free(SequenceId sequence) {
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end()) return;
  LeaveCache(sequence, &it->second);
  Uncount(it->second);
  holdings_.erase(it);
}

absl::Span<const BlockId> PagedBlockManager::Table(SequenceId sequence) const {
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end() || it->second.is_swapped) return {};
  return it->second.table.ids();
}

SheetsView PagedBlockManager::Sheets(SequenceId sequence, int group) const {
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end() || it->second.is_swapped) return {};
  return it->second.sheets[group - 1].view();
}

void PagedBlockManager::OnStepCommitted(StepId step) {
  copies_.DropUntil(step);
  while (!swaps_.empty() && swaps_.front().step <= step) swaps_.pop_front();
}

void PagedBlockManager::OnStepsAbandoned() {
  copies_.Clear();
  swaps_.clear();
  // Swapped sequences are erased in the order of their ids, because that decides which host blocks are taken next.
  std::vector<SequenceId> swapped;
  for (const auto& [sequence, holding] : holdings_) {
    if (holding.is_swapped) swapped.push_back(sequence);
  }
  std::sort(swapped.begin(), swapped.end());
  for (const SequenceId sequence : swapped) holdings_.erase(sequence);
  for (auto& [sequence, holding] : holdings_) {
    holding.is_published = false;
    holding.num_published_blocks = 0;
  }
  pins_.Clear();
  tree_.Clear();
  promises_.Clear();
  if (options_.index != nullptr) options_.index->ClearBlocks();
  step_ = StepId{0};
}

PrefixHit PagedBlockManager::FindPrefix(const std::string& salt, absl::Span<const TokenId> tokens) const {
  PrefixHit result;
  if (!has_prefix_cache_) return result;
  const int limit = static_cast<int>(tokens.size()) - 1;
  const PrefixTree::Hit hit = tree_.Find(salt, tokens, limit);
  result.num_tokens = hit.num_tokens;
  result.num_block_tokens = static_cast<int>(hit.blocks.size()) * block_size();
  result.num_revived_blocks = result.num_revived_with_part = hit.num_evictable;
  if (hit.partial_block.has_value() && pool_.is_evictable(*hit.partial_block)) --result.num_revived_blocks;
  result.is_promised = promises_.NumTokens(salt, tokens, limit) > result.num_block_tokens;
  return result;
}

void PagedBlockManager::AdoptPrefix(SequenceId sequence, const std::string& salt, absl::Span<const TokenId> tokens,
                                    int num_tokens) {
  if (!has_prefix_cache_) return;
  QUIRE_CHECK(!holdings_.contains(sequence)) << sequence << " has a table";
  Holding& holding = HoldingOf(sequence);
  holding.is_published = true;
  holding.salt = salt;
  holding.published_in = cache_step_;
  promises_.Add(sequence, salt, tokens);
  if (num_tokens == 0) return;
  const PrefixTree::Hit hit = tree_.Find(salt, tokens, static_cast<int>(tokens.size()) - 1);
  for (const BlockId block : hit.blocks) holding.table.Append(tree_.Share(block));
  holding.num_published_blocks = holding.table.num_blocks();
  if (num_tokens > holding.table.num_slots()) {
    QUIRE_CHECK_EQ(hit.num_tokens, num_tokens) << sequence;
    holding.table.Append(tree_.Share(*hit.partial_block));
  } else {
    QUIRE_CHECK_EQ(holding.table.num_slots(), num_tokens) << sequence;
  }
  holding.num_tokens = num_tokens;
  Count(holding);
  tree_.Touch(holding.table.ids().back(), cache_step_);
}

// While the sequence holds its published blocks, all of them keep the step of the first one. To raise the step with
// every block would take a walk over all blocks before it.
std::optional<int> PagedBlockManager::Publish(SequenceId sequence, absl::Span<const TokenId> tokens, int num_tokens) {
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end() || !it->second.is_published) return std::nullopt;
  Holding& holding = it->second;
  std::optional<int> first_changed;
  int& i = holding.num_published_blocks;
  for (; i < num_tokens / block_size(); ++i) {
    const BlockRef& own = holding.table.block(i);
    const std::optional<BlockId> parent = i == 0 ? std::nullopt : std::optional<BlockId>(holding.table.ids()[i - 1]);
    const BlockId cached =
        tree_.Insert(holding.salt, parent, tokens.subspan(i * block_size(), block_size()), own, holding.published_in);
    if (cached == own.id()) {
      TellIndex(holding.salt, parent, cached, tokens.subspan(i * block_size(), block_size()));
      continue;
    }
    // Forks share this block. To replace it here would use one block more, not one less. Publishing continues when the
    // forks are gone.
    if (IsShared(own.id())) break;
    holding.table.Replace(i, tree_.Share(cached));
    if (!first_changed.has_value()) first_changed = i;
  }
  return first_changed;
}

void PagedBlockManager::Prove(SequenceId sequence, int num_tokens) {
  const auto it = holdings_.find(sequence);
  if (it == holdings_.end()) return;
  const int num_blocks = std::min(it->second.num_published_blocks, num_tokens / block_size());
  if (num_blocks > 0) tree_.Prove(it->second.table.ids()[num_blocks - 1]);
}

void PagedBlockManager::Uncache(const std::string& salt, absl::Span<const TokenId> tokens) {
  const PrefixTree::Hit hit = tree_.Find(salt, tokens, static_cast<int>(tokens.size()));
  const auto first =
      std::find_if(hit.blocks.begin(), hit.blocks.end(), [this](BlockId block) { return !tree_.is_proved(block); });
  if (first != hit.blocks.end()) {
    tree_.Drop(*first);
    TellEvicted();
  }
  for (auto& [sequence, holding] : holdings_) {
    const int num_published = holding.num_published_blocks;
    const bool has_lost = num_published > 0 && !tree_.Contains(holding.table.ids()[num_published - 1]);
    // What is in the host tier may be a copy of these blocks, which nobody knows there.
    if (!has_lost && !(holding.is_swapped && holding.salt == salt)) continue;
    promises_.Drop(sequence);
    holding.is_published = false;
    holding.num_published_blocks = 0;
  }
}

bool PagedBlockManager::SwapOut(absl::Span<const SequenceExtent> sequences, std::vector<BlockSwap>* swap_outs) {
  absl::flat_hash_set<BlockId> blocks;
  for (const SequenceExtent& extent : sequences) {
    const absl::Span<const BlockId> table = Table(extent.sequence);
    blocks.insert(table.begin(), table.begin() + NumBlocksFor(extent.num_tokens, block_size()));
    for (const SheetTable& live : LiveSheets(extent)) {
      const absl::Span<const BlockId> sheets = live.view().blocks;
      blocks.insert(sheets.begin(), sheets.end());
    }
  }
  if (blocks.empty() || static_cast<int>(blocks.size()) > host_pool_.num_free()) return false;
  absl::flat_hash_map<BlockId, BlockRef> moved;
  for (const SequenceExtent& extent : sequences) {
    Holding& holding = HoldingOf(extent.sequence);
    BlockTable host_table(block_size());
    for (int i = 0; i < NumBlocksFor(extent.num_tokens, block_size()); ++i) {
      host_table.Append(MoveOut(holding.table.ids()[i], &moved, swap_outs));
    }
    std::vector<SheetTable> host_sheets;
    for (const SheetTable& live : LiveSheets(extent)) {
      SheetTable& host = host_sheets.emplace_back(live.blocks_per_sheet());
      host.BeginAt(live.first());
      for (const BlockId block : live.view().blocks) host.Append(MoveOut(block, &moved, swap_outs));
    }
    LeaveCache(extent.sequence, &holding);
    Uncount(holding);
    holding.table = std::move(host_table);
    holding.sheets = std::move(host_sheets);
    holding.num_tokens = extent.num_tokens;
    holding.is_swapped = true;
    holding.num_lent_blocks = 0;
  }
  return true;
}

std::vector<SheetTable> PagedBlockManager::LiveSheets(const SequenceExtent& extent) const {
  std::vector<SheetTable> live;
  const auto it = holdings_.find(extent.sequence);
  if (it == holdings_.end()) return live;
  const int end = NumBlocksFor(extent.num_tokens, block_size());
  for (int group = 1; group < groups_.size(); ++group) {
    const SheetTable& table = it->second.sheets[group - 1];
    live.push_back(table.is_empty() ? SheetTable(table.blocks_per_sheet())
                                    : table.Share(groups_.FirstSheet(group, extent.num_tokens), end));
  }
  return live;
}

BlockRef PagedBlockManager::MoveOut(BlockId block, absl::flat_hash_map<BlockId, BlockRef>* moved,
                                    std::vector<BlockSwap>* swap_outs) {
  BlockRef& host = (*moved)[block];
  if (!host) {
    host = host_pool_.Take();
    // Swaps come before copies, so the content of a block that a copy of this step fills is still in its source.
    const BlockId source = copies_.FindSource(block, step_).value_or(block);
    swap_outs->push_back({source, host.id()});
  }
  return host.Share();
}

BlockRef PagedBlockManager::MoveIn(const BlockRef& host, absl::flat_hash_map<BlockId, BlockRef>* moved,
                                   std::vector<BlockSwap>* swap_ins) {
  BlockRef& block = (*moved)[host.id()];
  if (!block) {
    block = Take();
    swap_ins->push_back({block.id(), host.id()});
    swaps_.push_back({step_, host.Share()});
  }
  return block.Share();
}

int PagedBlockManager::NumBlocksToSwapIn(absl::Span<const SequenceId> sequences) const {
  absl::flat_hash_set<BlockId> blocks;
  for (const SequenceId sequence : sequences) {
    const Holding& holding = holdings_.at(sequence);
    blocks.insert(holding.table.ids().begin(), holding.table.ids().end());
    for (const SheetTable& table : holding.sheets) {
      const absl::Span<const BlockId> sheets = table.view().blocks;
      blocks.insert(sheets.begin(), sheets.end());
    }
  }
  return static_cast<int>(blocks.size());
}

bool PagedBlockManager::SwapIn(absl::Span<const SequenceId> sequences, std::vector<BlockSwap>* swap_ins) {
  if (NumBlocksToSwapIn(sequences) > num_free_blocks()) return false;
  absl::flat_hash_map<BlockId, BlockRef> moved;
  for (const SequenceId sequence : sequences) {
    Holding& holding = holdings_.at(sequence);
    QUIRE_CHECK(holding.is_swapped) << sequence;
    BlockTable table(block_size());
    for (int i = 0; i < holding.table.num_blocks(); ++i) {
      table.Append(MoveIn(holding.table.block(i), &moved, swap_ins));
    }
    holding.table = std::move(table);
    for (SheetTable& host : holding.sheets) {
      SheetTable sheets(host.blocks_per_sheet());
      sheets.BeginAt(host.first());
      for (int sheet = host.first(); sheet < host.end(); ++sheet) {
        for (int part = 0; part < host.blocks_per_sheet(); ++part) {
          sheets.Append(MoveIn(host.block(sheet, part), &moved, swap_ins));
        }
      }
      host = std::move(sheets);
    }
    holding.is_swapped = false;
    Count(holding);
  }
  return true;
}

absl::StatusOr<int> PagedBlockManager::Pin(const std::string& salt, absl::Span<const TokenId> tokens,
                                           int64_t expires_us) {
  QUIRE_ASSIGN_OR_RETURN(const int num_blocks, pins_.Pin(salt, tokens, expires_us));
  return num_blocks * block_size();
}

absl::StatusOr<int> PagedBlockManager::PinForTenant(const std::string& tenant, double max_share,
                                                    const std::string& salt, absl::Span<const TokenId> tokens,
                                                    int64_t expires_us) {
  const auto max_blocks = static_cast<int>(BlocksOfShare(max_share, options_.max_pinned_blocks));
  QUIRE_ASSIGN_OR_RETURN(const int num_blocks, pins_.PinForTenant(tenant, max_blocks, salt, tokens, expires_us));
  return num_blocks * block_size();
}

BlockCounts PagedBlockManager::counts() const {
  return {.total = pool_.num_blocks(),
          .free = pool_.num_free(),
          .evictable = pool_.num_evictable(),
          .used = pool_.num_used(),
          .shared = pool_.num_shared(),
          .host_total = host_pool_.num_blocks(),
          .host_used = host_pool_.num_used(),
          .pinned = pins_.num_blocks(),
          .table_entries = num_table_entries_,
          .live_tokens = num_live_tokens_};
}

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
                       .num_copies = copies_.CountOf(block),
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

BlockRecount PagedBlockManager::Recount() const {
  BlockRecount recount(pool_.num_blocks(), host_pool_.num_blocks());
  for (const auto& [sequence, holding] : holdings_) {
    recount.AddTable(holding.table, holding.num_tokens, holding.is_swapped);
    for (const SheetTable& table : holding.sheets) recount.AddSheets(table, holding.is_swapped);
  }
  recount.AddCopies(copies_);
  for (const SwapInFlight& swap : swaps_) recount.AddHostReference(swap.host.id());
  recount.AddPins(pins_);
  recount.AddCache(tree_);
  return recount;
}

BlockAudit PagedBlockManager::Audit() const {
  const BlockRecount recount = Recount();
  BlockAudit audit = recount.Compare(pool_, host_pool_, copies_);
  audit.contradiction.Update(pool_.CheckIntegrity());
  audit.contradiction.Update(host_pool_.CheckIntegrity());
  audit.contradiction.Update(tree_.CheckIntegrity());
  audit.contradiction.Update(recount.CheckTables(num_table_entries_, num_live_tokens_));
  return audit;
}

BlockAudit PagedBlockManager::Repair() {
  BlockAudit found = Audit();
  if (found.num_differences == 0) return found;
  Recount().Repair(&pool_, &host_pool_);
  copies_.RepairCounts();
  return found;
}

void PagedBlockManager::LeaveCache(SequenceId sequence, Holding* holding) {
  promises_.Drop(sequence);
  const int num_published = std::exchange(holding->num_published_blocks, 0);
  if (num_published > 0) tree_.Touch(holding->table.ids()[num_published - 1], cache_step_);
}

PagedBlockManager::Holding& PagedBlockManager::HoldingOf(SequenceId sequence) {
  const auto it = holdings_.find(sequence);
  return it != holdings_.end() ? it->second : holdings_.emplace(sequence, NewHolding()).first->second;
}

PagedBlockManager::Holding PagedBlockManager::NewHolding() const {
  Holding holding(block_size());
  for (int group = 1; group < groups_.size(); ++group) {
    holding.sheets.emplace_back(groups_.group(group).blocks_per_sheet);
  }
  return holding;
}

void PagedBlockManager::Uncount(const Holding& holding) {
  if (holding.is_swapped) return;
  num_table_entries_ -= holding.table.num_blocks();
  num_live_tokens_ -= holding.num_tokens;
}

void PagedBlockManager::Count(const Holding& holding) {
  if (holding.is_swapped) return;
  num_table_entries_ += holding.table.num_blocks();
  num_live_tokens_ += holding.num_tokens;
}

BlockRef PagedBlockManager::Take() {
  if (pool_.num_free() == 0) {
    const bool has_evicted = EvictOne();
    QUIRE_CHECK(has_evicted) << "a block was promised and none is free";
  }
  return pool_.Take();
}

bool PagedBlockManager::EvictOne() {
  if (!tree_.EvictOne().has_value()) return false;
  TellEvicted();
  ++num_evictions_;
  return true;
}

void PagedBlockManager::TellEvicted() {
  if (options_.index == nullptr) return;
  for (const BlockId block : tree_.last_evicted()) options_.index->Set(block, std::nullopt);
}

int PagedBlockManager::EvictCached(int max_blocks) {
  int num_evicted = 0;
  while (num_evicted < max_blocks && EvictOne()) ++num_evicted;
  return num_evicted;
}

void PagedBlockManager::TellIndex(absl::string_view salt, std::optional<BlockId> parent, BlockId block,
                                  absl::Span<const TokenId> tokens) {
  if (options_.index == nullptr) return;
  const PrefixHash before = parent.has_value() ? hashes_[Value(*parent)] : HashOfSalt(salt);
  hashes_[Value(block)] = ExtendPrefixHash(before, tokens);
  options_.index->Set(block, hashes_[Value(block)]);
}

void PagedBlockManager::Restore(const RestoredBlocks& restored) {
  QUIRE_CHECK_EQ(groups_.size(), 1) << "no worker tells the sheets of several groups";
  QUIRE_CHECK(holdings_.empty()) << holdings_.size() << " sequences have tables";
  QUIRE_CHECK_EQ(tree_.num_blocks(), 0);
  std::vector<BlockId> blocks;
  for (const RestoredBlocks::Table& table : restored.tables) {
    blocks.insert(blocks.end(), table.blocks.begin(), table.blocks.end());
  }
  if (has_prefix_cache_) {
    for (const RestoredBlocks::CachedBlock& cached : restored.cached) blocks.push_back(cached.block);
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  absl::flat_hash_map<BlockId, BlockRef> references;
  for (BlockRef& reference : pool_.TakeThese(blocks)) references.emplace(reference.id(), std::move(reference));
  // The tables come first, so that a sequence holds its own blocks where the cache has two with equal contents.
  for (const RestoredBlocks::Table& table : restored.tables) RestoreTable(table, references);
  if (has_prefix_cache_) RestoreCache(restored.cached, references);
  // Blocks that nobody has taken are freed in their order, not in that of a hash table.
  for (const BlockId block : blocks) references.erase(block);
}

void PagedBlockManager::RestoreTable(const RestoredBlocks::Table& restored,
                                     const absl::flat_hash_map<BlockId, BlockRef>& references) {
  QUIRE_CHECK_EQ(static_cast<int>(restored.blocks.size()), NumBlocksFor(restored.num_stored, block_size()));
  QUIRE_CHECK(!holdings_.contains(restored.sequence)) << restored.sequence << " has a table";
  Holding& holding = HoldingOf(restored.sequence);
  for (const BlockId block : restored.blocks) holding.table.Append(references.at(block).Share());
  holding.num_tokens = restored.num_stored;
  Count(holding);
  if (!restored.salt.has_value() || !has_prefix_cache_) return;
  holding.is_published = true;
  holding.salt = *restored.salt;
  holding.published_in = cache_step_;
  promises_.Add(restored.sequence, holding.salt, restored.tokens);
  Publish(restored.sequence, restored.tokens, restored.num_stored);
}

void PagedBlockManager::RestoreCache(absl::Span<const RestoredBlocks::CachedBlock> cached,
                                     const absl::flat_hash_map<BlockId, BlockRef>& references) {
  std::vector<BlockId> nodes;  // The block that the cache has for each entry.
  nodes.reserve(cached.size());
  for (const RestoredBlocks::CachedBlock& entry : cached) {
    const std::optional<BlockId> parent =
        entry.parent.has_value() ? std::optional<BlockId>(nodes[*entry.parent]) : std::nullopt;
    nodes.push_back(tree_.Insert(*entry.salt, parent, entry.tokens, references.at(entry.block), cache_step_));
    if (nodes.back() == entry.block) TellIndex(*entry.salt, parent, entry.block, entry.tokens);
  }
}

}  // namespace quire
