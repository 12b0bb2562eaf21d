// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/audited_blocks.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/num_blocks.h"
#include "base/status.h"
#include "scheduler/tenant_shares.h"

namespace quire {

AuditedBlocks::AuditedBlocks(const PagedBlockManagerOptions& options, Observer* observer)
    : PagedBlockManager(options),
      observer_(observer),
      max_pinned_blocks_(options.max_pinned_blocks),
      has_prefix_cache_(options.has_prefix_cache && options.groups.size() == 1),
      states_(options.num_blocks),
      host_owners_(options.num_host_blocks, 0) {}

template <typename... Parts>
void AuditedBlocks::Complain(const Parts&... parts) {
  if (status_.ok()) status_ = absl::InternalError(absl::StrCat("blocks: ", parts...));
}

void AuditedBlocks::EndCopy(const CopyInFlight& copy) {
  --states_[Value(copy.copy.source)].copies;
  --states_[Value(copy.copy.destination)].copies;
}

void AuditedBlocks::BeginStep(StepId step) {
  observer_->OnBeginStep();
  for (; !copies_.empty() && copies_.back().step >= step; copies_.pop_back()) EndCopy(copies_.back());
  for (; !swap_ins_.empty() && swap_ins_.back().step >= step; swap_ins_.pop_back()) {
    --host_owners_[Value(swap_ins_.back().host)];
  }
  step_ = step;
  PagedBlockManager::BeginStep(step);
}

void AuditedBlocks::OnStepCommitted(StepId step) {
  observer_->OnStepCommitted();
  for (; !copies_.empty() && copies_.front().step <= step; copies_.pop_front()) EndCopy(copies_.front());
  for (; !swap_ins_.empty() && swap_ins_.front().step <= step; swap_ins_.pop_front()) {
    --host_owners_[Value(swap_ins_.front().host)];
  }
  PagedBlockManager::OnStepCommitted(step);
}

void AuditedBlocks::OnStepsAbandoned() {
  for (const CopyInFlight& copy : copies_) EndCopy(copy);
  copies_.clear();
  swap_ins_.clear();
  host_owners_.assign(host_owners_.size(), 0);
  absl::erase_if(accounts_, [](const auto& entry) { return entry.second.is_swapped; });
  for (auto& [sequence, account] : accounts_) {
    account.is_published = false;
    account.num_published = 0;
  }
  cached_.clear();
  pins_.clear();
  for (BlockState& state : states_) {
    state.pins = 0;
    state.is_cached = false;
    state.is_proved = false;
    state.num_cached_above = 0;
  }
  PagedBlockManager::OnStepsAbandoned();
  observer_->OnStepsAbandoned();
}

bool AuditedBlocks::Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) {
  const int num_free = num_free_blocks();
  const int num_needed = NumBlocksNeeded(sequence, first_written, num_tokens);
  const size_t first_copy = copies->size();
  const bool has_room = PagedBlockManager::Allocate(sequence, first_written, num_tokens, copies);
  if (has_room != (num_needed <= num_free)) Complain(num_needed, " needed, ", num_free, " free, allocated: ", has_room);
  if (num_free_blocks() != num_free - (has_room ? num_needed : 0)) {
    Complain(num_needed, " blocks were needed, ", num_free - num_free_blocks(), " taken");
  }
  if (!has_room) {
    if (copies->size() != first_copy) Complain("copies for an allocation that failed");
    return false;
  }
  Account& account = AccountOf(sequence);
  for (int group = 1; group < groups().size(); ++group) {
    Sheets& sheets = account.sheets[group - 1];
    Sheets released;
    while (!sheets.empty() && sheets.begin()->first < FirstSheet(group, first_written)) {
      released.insert(sheets.extract(sheets.begin()));
    }
    DropSheets(&released, /*is_host=*/false);
  }
  std::vector<BlockId>& table = account.table;
  const absl::Span<const BlockId> changed = Table(sequence);
  const int first_block = first_written / block_size();
  const size_t old_size = table.size();
  if (account.is_swapped) Complain("sequence ", Value(sequence), " allocates while it is swapped out");
  if (changed.size() != std::max<size_t>(old_size, NumBlocksFor(num_tokens, block_size()))) {
    Complain("a table of ", changed.size(), " blocks for ", num_tokens, " tokens");
    return true;
  }
  size_t next_copy = first_copy;
  for (size_t i = 0; i < old_size; ++i) {
    const BlockId old = table[i];
    if (changed[i] == old) continue;
    BlockState& state = states_[Value(old)];
    if (static_cast<int>(i) < first_block) Complain("entry ", i, " changed, written from ", first_written);
    if (state.owners + state.pins < 2 && !state.is_cached)
      Complain("block ", Value(old), " had one owner and was copied");
    --state.owners;
    TakeFresh(changed[i]);
    table[i] = changed[i];
    if (static_cast<int>(i) != first_block || first_written % block_size() == 0) continue;
    TakeCopy({old, changed[i]}, *copies, &next_copy);
  }
  for (size_t i = old_size; i < changed.size(); ++i) AddFresh(changed[i], &table);
  CheckWritable(sequence, account, first_written, num_tokens);
  for (int group = 1; group < groups().size(); ++group) {
    TakeSheets(sequence, group, first_written, num_tokens, *copies, &next_copy);
  }
  if (copies->size() != next_copy) Complain("a copy that nobody needs");
  return true;
}

void AuditedBlocks::TakeCopy(const BlockCopy& copy, const std::vector<BlockCopy>& copies, size_t* next_copy) {
  if (*next_copy >= copies.size() || copies[*next_copy] != copy) {
    return Complain("block ", Value(copy.source), " is to be copied to ", Value(copy.destination));
  }
  ++*next_copy;
  copies_.push_back({step_, copy});
  ++states_[Value(copy.source)].copies;
  ++states_[Value(copy.destination)].copies;
  ++num_copies_;
}

AuditedBlocks::Account& AuditedBlocks::AccountOf(SequenceId sequence) {
  Account& account = accounts_[sequence];
  account.sheets.resize(groups().size() - 1);
  return account;
}

int AuditedBlocks::FirstSheet(int group, int position) const {
  return std::max(0, position - groups().group(group).window_tokens) / block_size();
}

AuditedBlocks::Sheets AuditedBlocks::FoundSheets(SequenceId sequence, int group) const {
  const SheetsView view = PagedBlockManager::Sheets(sequence, group);
  const size_t width = groups().group(group).blocks_per_sheet;
  Sheets sheets;
  for (size_t i = 0; i + width <= view.blocks.size(); i += width) {
    const absl::Span<const BlockId> blocks = view.blocks.subspan(i, width);
    sheets[view.first + static_cast<int>(i / width)].assign(blocks.begin(), blocks.end());
  }
  return sheets;
}

// Every sheet that a slice from `first_written` on writes is the sequence's own, and those that it reads stay.
void AuditedBlocks::TakeSheets(SequenceId sequence, int group, int first_written, int num_tokens,
                               const std::vector<BlockCopy>& copies, size_t* next_copy) {
  Sheets& sheets = AccountOf(sequence).sheets[group - 1];
  Sheets found = FoundSheets(sequence, group);
  const int first_sheet = first_written / block_size();
  for (const auto& [sheet, blocks] : sheets) {
    const auto it = found.find(sheet);
    if (it == found.end()) return Complain("sheet ", sheet, " of group ", group, " is gone");
    if (it->second == blocks) continue;
    if (sheet < first_sheet) Complain("sheet ", sheet, " has changed, written from ", first_written);
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (states_[Value(blocks[i])].owners < 2) Complain("block ", Value(blocks[i]), " had one owner and was copied");
      --states_[Value(blocks[i])].owners;
      TakeFresh(it->second[i]);
      if (sheet != first_sheet || first_written % block_size() == 0) continue;
      TakeCopy({blocks[i], it->second[i]}, copies, next_copy);
    }
  }
  for (const auto& [sheet, blocks] : found) {
    if (sheet < FirstSheet(group, first_written)) Complain("sheet ", sheet, " is behind the window");
    if (sheets.contains(sheet)) continue;
    if (sheet < first_sheet) Complain("sheet ", sheet, " came from nowhere");
    for (const BlockId block : blocks) TakeFresh(block);
  }
  const auto most = static_cast<size_t>(groups().MaxLiveSheets(group, num_tokens));
  if (found.size() > std::max(most, sheets.size())) Complain(found.size(), " live sheets, at most ", most);
  const int end =
      std::min(NumBlocksFor(num_tokens, block_size()), FirstSheet(group, first_written) + static_cast<int>(most));
  for (int sheet = first_sheet; sheet < end; ++sheet) {
    if (!found.contains(sheet)) Complain("sheet ", sheet, " is missing");
  }
  for (const auto& [sheet, blocks] : found) {
    if (sheet >= first_sheet && states_[Value(blocks[0])].owners != 1) {
      Complain("sequence ", Value(sequence), " writes to sheet ", sheet, ", which others have");
    }
  }
  sheets = std::move(found);
}

void AuditedBlocks::DropSheets(Sheets* sheets, bool is_host) {
  for (const auto& [sheet, blocks] : *sheets) DropOwners(blocks, is_host);
  sheets->clear();
}

// A sequence that waits has the sheets that it will write. Another fork has none before.
void AuditedBlocks::ShareSheets(SequenceId parent, SequenceId child, int num_tokens) {
  PagedBlockManager::ShareSheets(parent, child, num_tokens);
  if (!accounts_.contains(parent) || !accounts_.contains(child)) return;
  const bool is_swapped = accounts_[child].is_swapped;
  for (int group = 1; group < groups().size(); ++group) {
    const Sheets& from = AccountOf(parent).sheets[group - 1];
    Sheets& to = AccountOf(child).sheets[group - 1];
    const int end = NumBlocksFor(num_tokens, block_size());
    for (int sheet = FirstSheet(group, num_tokens); sheet < end; ++sheet) {
      const auto it = from.find(sheet);
      if (it == from.end()) {
        Complain("sheet ", sheet, " of group ", group, " has left sequence ", Value(parent), " before it was shared");
        continue;
      }
      if (!to.emplace(sheet, it->second).second) Complain("sheet ", sheet, " was there before it was shared");
      for (const BlockId block : it->second) ++(is_swapped ? host_owners_[Value(block)] : states_[Value(block)].owners);
    }
    if (!is_swapped && FoundSheets(child, group) != to) Complain("a fork does not share the sheets of its window");
  }
}

void AuditedBlocks::AddFresh(BlockId block, std::vector<BlockId>* table) {
  TakeFresh(block);
  table->push_back(block);
}

void AuditedBlocks::TakeFresh(BlockId block) {
  BlockState& state = states_[Value(block)];
  if (state.owners != 0) Complain("block ", Value(block), " was handed out while ", state.owners, " tables have it");
  if (state.copies != 0) Complain("block ", Value(block), " was handed out while a copy of it is in flight");
  if (state.pins != 0) Complain("block ", Value(block), " was handed out while ", state.pins, " pins hold it");
  if (state.is_cached) {
    ClearCached(block);
    ++num_evictions_;
  }
  ++state.generation;
  ++state.owners;
}

void AuditedBlocks::SetCached(BlockId block, Content content, const std::string& salt) {
  BlockState& state = states_[Value(block)];
  state.is_cached = true;
  state.salt = salt;
  state.cached_below = content.first;
  if (state.cached_below != 0) ++states_[state.cached_below - 1].num_cached_above;
  cached_[content] = block;
  state.content = std::move(content);
}

AuditedBlocks::Content AuditedBlocks::ContentOf(std::optional<BlockId> parent, const std::string& salt,
                                                absl::Span<const TokenId> tokens) {
  Content content{parent.has_value() ? Value(*parent) + 1 : 0, salt + '/'};
  content.second.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId));
  return content;
}

// With it go those above it. They would have been evicted before unless somebody holds them without what is below.
void AuditedBlocks::ClearCached(BlockId block, bool is_evicted) {
  BlockState& state = states_[Value(block)];
  state.is_cached = false;
  state.is_proved = false;
  cached_.erase(state.content);
  if (state.cached_below != 0) --states_[state.cached_below - 1].num_cached_above;
  for (uint32_t i = 0; state.num_cached_above > 0; ++i) {
    const BlockState& above = states_[i];
    if (!above.is_cached || above.cached_below != Value(block) + 1) continue;
    if (is_evicted && above.owners + above.copies + above.pins == 0)
      Complain("block ", Value(block), " was evicted from below block ", i);
    ClearCached(BlockId{i}, is_evicted);
  }
}

// Only forks that wait for the stored tokens may read them.
void AuditedBlocks::CheckWritable(SequenceId sequence, const Account& account, int first_written, int num_tokens) {
  for (int i = first_written / block_size(); i < NumBlocksFor(num_tokens, block_size()); ++i) {
    const BlockId block = account.table[i];
    const BlockState& state = states_[Value(block)];
    if (i < account.num_lent || (state.owners + state.pins == 1 && !state.is_cached)) continue;
    Complain("sequence ", Value(sequence), " writes to block ", Value(block), ", which is in ", state.owners,
             " tables, pinned ", state.pins, " times and ", state.is_cached ? "cached" : "not cached");
  }
}

void AuditedBlocks::Fork(SequenceId parent, SequenceId child, int num_tokens) {
  const int num_free = num_free_blocks();
  PagedBlockManager::Fork(parent, child, num_tokens);
  const auto it = accounts_.find(parent);
  if (it == accounts_.end()) return;
  Account account = it->second;
  it->second.num_lent = std::max(it->second.num_lent, num_tokens / block_size());
  account.num_lent = 0;
  account.sheets.assign(groups().size() - 1, {});
  account.table.resize(std::min<size_t>(account.table.size(), NumBlocksFor(num_tokens, block_size())));
  account.num_published = std::min(account.num_published, num_tokens / block_size());
  for (const BlockId block : account.table) {
    ++(account.is_swapped ? host_owners_[Value(block)] : states_[Value(block)].owners);
  }
  const absl::Span<const BlockId> table = Table(child);
  if (table != absl::MakeConstSpan(account.is_swapped ? std::vector<BlockId>() : account.table)) {
    Complain("the fork of sequence ", Value(parent), " does not share its blocks");
  }
  if (num_free_blocks() != num_free) Complain("a fork took ", num_free - num_free_blocks(), " blocks");
  accounts_[child] = std::move(account);
}

void AuditedBlocks::DropOwners(const std::vector<BlockId>& table, bool is_host) {
  for (const BlockId block : table) --(is_host ? host_owners_[Value(block)] : states_[Value(block)].owners);
}

void AuditedBlocks::Free(SequenceId sequence) {
  PagedBlockManager::Free(sequence);
  if (!Table(sequence).empty()) Complain("sequence ", Value(sequence), " has blocks after Free");
  const auto it = accounts_.find(sequence);
  if (it == accounts_.end()) return;
  DropOwners(it->second.table, it->second.is_swapped);
  for (Sheets& sheets : it->second.sheets) DropSheets(&sheets, it->second.is_swapped);
  if (!it->second.is_swapped) released_.push_back(sequence);
  accounts_.erase(it);
}

void AuditedBlocks::AdoptPrefix(SequenceId sequence, const std::string& salt, absl::Span<const TokenId> tokens,
                                int num_tokens) {
  PagedBlockManager::AdoptPrefix(sequence, salt, tokens, num_tokens);
  if (!has_prefix_cache_) return;
  Account& account = AccountOf(sequence);
  account.is_published = true;
  account.salt = salt;
  num_adopted_tokens_ += num_tokens;
  const absl::Span<const BlockId> table = Table(sequence);
  account.table.assign(table.begin(), table.end());
  account.num_published = num_tokens / block_size();
  if (static_cast<int>(table.size()) != NumBlocksFor(num_tokens, block_size())) {
    Complain(table.size(), " cached blocks for ", num_tokens, " tokens");
  }
  for (const BlockId block : table) {
    BlockState& state = states_[Value(block)];
    if (!state.is_cached || state.salt != salt) {
      Complain("block ", Value(block), " was adopted for salt '", salt, "' and is cached ", state.is_cached ? 1 : 0,
               " times, for salt '", state.salt, "'");
    }
    ++state.owners;
  }
}

std::optional<int> AuditedBlocks::Publish(SequenceId sequence, absl::Span<const TokenId> tokens, int num_tokens) {
  const std::optional<int> first_changed = PagedBlockManager::Publish(sequence, tokens, num_tokens);
  const auto it = accounts_.find(sequence);
  if (it == accounts_.end() || !it->second.is_published) {
    if (first_changed.has_value()) Complain("a table without promises changed by being published");
    return first_changed;
  }
  std::vector<BlockId>& table = it->second.table;
  const absl::Span<const BlockId> changed = Table(sequence);
  std::optional<int> first_different;
  bool is_shared = false;  // The sequence kept its own copy of a block that the cache already has.
  for (int i = 0; i < static_cast<int>(table.size()); ++i) {
    const BlockId own = table[i];
    const bool is_whole = (i + 1) * block_size() <= num_tokens && !is_shared;
    BlockId expected = own;
    if (is_whole && !states_[Value(own)].is_cached) {
      Content content = ContentOf(i == 0 ? std::nullopt : std::optional(table[i - 1]), it->second.salt,
                                  tokens.subspan(i * block_size(), block_size()));
      const auto cached = cached_.find(content);
      if (cached == cached_.end()) {
        SetCached(own, std::move(content), it->second.salt);
      } else if (is_restoring_ || states_[Value(own)].owners + states_[Value(own)].pins > 1) {
        is_shared = true;
      } else {
        expected = cached->second;
        if (!first_different.has_value()) first_different = i;
      }
    }
    if (is_whole && !is_shared) it->second.num_published = std::max(it->second.num_published, i + 1);
    if (changed[i] != expected) {
      Complain("entry ", i, " was published as block ", Value(changed[i]), " in place of ", Value(expected));
    }
    --states_[Value(own)].owners;
    ++states_[Value(changed[i])].owners;
    table[i] = changed[i];
  }
  if (first_different != first_changed) Complain("Publish does not say which entry is the first that changed");
  return first_changed;
}

void AuditedBlocks::Prove(SequenceId sequence, int num_tokens) {
  PagedBlockManager::Prove(sequence, num_tokens);
  const auto it = accounts_.find(sequence);
  if (it == accounts_.end()) return;
  const int num_blocks = std::min(it->second.num_published, num_tokens / block_size());
  for (int i = 0; i < num_blocks; ++i) states_[Value(it->second.table[i])].is_proved = true;
}

void AuditedBlocks::Uncache(const std::string& salt, absl::Span<const TokenId> tokens) {
  PagedBlockManager::Uncache(salt, tokens);
  std::optional<BlockId> below;
  for (size_t i = 0; (i + 1) * block_size() <= tokens.size(); ++i) {
    const auto cached = cached_.find(ContentOf(below, salt, tokens.subspan(i * block_size(), block_size())));
    if (cached == cached_.end()) break;
    below = cached->second;
    if (states_[Value(*below)].is_proved) continue;
    ClearCached(*below, /*is_evicted=*/false);
    break;
  }
  for (auto& [sequence, account] : accounts_) {
    const bool has_lost = std::any_of(account.table.begin(), account.table.begin() + account.num_published,
                                      [this](BlockId block) { return !states_[Value(block)].is_cached; });
    if (!has_lost && !(account.is_swapped && account.salt == salt)) continue;
    account.is_published = false;
    account.num_published = 0;
  }
}

bool AuditedBlocks::SwapOut(absl::Span<const SequenceExtent> sequences, std::vector<BlockSwap>* swap_outs) {
  const size_t first_swap = swap_outs->size();
  if (!PagedBlockManager::SwapOut(sequences, swap_outs)) {
    if (swap_outs->size() != first_swap) Complain("blocks were swapped out by a call that failed");
    return false;
  }
  absl::flat_hash_map<BlockId, BlockId> hosts;
  size_t next = first_swap;
  for (const SequenceExtent& extent : sequences) {
    Account& account = AccountOf(extent.sequence);
    std::vector<BlockId> host_table;
    const auto move = [&](BlockId block) {
      const auto [it, is_new] = hosts.try_emplace(block);
      if (is_new) {
        if (next == swap_outs->size()) return Complain("a block was left behind in the pool");
        it->second = (*swap_outs)[next++].host;
        if (host_owners_[Value(it->second)] != 0) Complain("host block ", Value(it->second), " was in use");
      }
    };
    const int end = NumBlocksFor(extent.num_tokens, block_size());
    for (int i = 0; i < end; ++i) {
      move(account.table[i]);
      host_table.push_back(hosts[account.table[i]]);
      ++host_owners_[Value(host_table.back())];
    }
    // What lies behind the computed tokens, and before their window, stays.
    for (int group = 1; group < groups().size(); ++group) {
      Sheets& sheets = account.sheets[group - 1];
      Sheets left;
      for (auto it = sheets.begin(); it != sheets.end();) {
        const auto here = it++;
        if (here->first < FirstSheet(group, extent.num_tokens) || here->first >= end) left.insert(sheets.extract(here));
      }
      DropSheets(&left, /*is_host=*/false);
      if (extent.num_tokens > 0 && static_cast<int>(sheets.size()) != end - FirstSheet(group, extent.num_tokens)) {
        Complain("a window of ", sheets.size(), " sheets is swapped out");
      }
      for (const auto& [sheet, blocks] : sheets) std::for_each(blocks.begin(), blocks.end(), move);
      sheets = Moved(sheets, hosts, /*to_host=*/true);
    }
    DropOwners(account.table, /*is_host=*/false);
    account.table = std::move(host_table);
    account.is_swapped = true;
    account.num_published = 0;
    account.num_lent = 0;
    released_.push_back(extent.sequence);
  }
  if (next != swap_outs->size()) Complain("a block was swapped out twice");
  return true;
}

bool AuditedBlocks::SwapIn(absl::Span<const SequenceId> sequences, std::vector<BlockSwap>* swap_ins) {
  const int num_needed = NumBlocksToSwapIn(sequences);
  const int num_free = num_free_blocks();
  const size_t first_swap = swap_ins->size();
  const bool has_room = PagedBlockManager::SwapIn(sequences, swap_ins);
  if (has_room != (num_needed <= num_free))
    Complain(num_needed, " needed, ", num_free, " free, swapped in: ", has_room);
  if (num_free_blocks() != num_free - (has_room ? num_needed : 0)) Complain("swapped in, took the wrong number");
  if (!has_room) return false;
  absl::flat_hash_map<BlockId, BlockId> devices;
  for (size_t i = first_swap; i < swap_ins->size(); ++i) {
    const BlockSwap& swap = (*swap_ins)[i];
    if (!devices.emplace(swap.host, swap.device).second) Complain("host block ", Value(swap.host), " came back twice");
    TakeFresh(swap.device);
    --states_[Value(swap.device)].owners;
    ++host_owners_[Value(swap.host)];
    swap_ins_.push_back({step_, swap.host});
  }
  for (const SequenceId sequence : sequences) {
    Account& account = accounts_[sequence];
    DropOwners(account.table, /*is_host=*/true);
    const absl::Span<const BlockId> table = Table(sequence);
    if (table.size() != account.table.size()) return Complain("a table of another size came back"), true;
    for (size_t i = 0; i < table.size(); ++i) {
      const auto device = devices.find(account.table[i]);
      if (device == devices.end() || device->second != table[i]) Complain("entry ", i, " came back from elsewhere");
      ++states_[Value(table[i])].owners;
    }
    account.table.assign(table.begin(), table.end());
    account.is_swapped = false;
    for (int group = 1; group < groups().size(); ++group) {
      Sheets& sheets = account.sheets[group - 1];
      sheets = Moved(sheets, devices, /*to_host=*/false);
      if (FoundSheets(sequence, group) != sheets) Complain("other sheets came back than were swapped out");
    }
  }
  return true;
}

AuditedBlocks::Sheets AuditedBlocks::Moved(const Sheets& sheets, const absl::flat_hash_map<BlockId, BlockId>& moved,
                                           bool to_host) {
  Sheets result;
  for (const auto& [sheet, blocks] : sheets) {
    DropOwners(blocks, /*is_host=*/!to_host);
    for (const BlockId block : blocks) {
      const auto it = moved.find(block);
      if (it == moved.end()) return Complain("a block of a sheet was not moved"), result;
      result[sheet].push_back(it->second);
      ++(to_host ? host_owners_[Value(it->second)] : states_[Value(it->second)].owners);
    }
  }
  return result;
}

// The tables belong to the worker, whose contents the observer compares. A block of several tables has an owner in
// each.
void AuditedBlocks::Restore(const RestoredBlocks& restored) {
  for (const RestoredBlocks::Table& table : restored.tables) {
    Account& account = accounts_[table.sequence];
    account.table = table.blocks;
    account.is_published = has_prefix_cache_ && table.salt.has_value();
    account.salt = table.salt.value_or("");
    for (const BlockId block : table.blocks) ++states_[Value(block)].owners;
  }
  is_restoring_ = true;
  PagedBlockManager::Restore(restored);
  is_restoring_ = false;
  for (const RestoredBlocks::Table& table : restored.tables) {
    if (Table(table.sequence) != absl::MakeConstSpan(table.blocks)) {
      Complain("sequence ", Value(table.sequence), " does not get its blocks back");
    }
  }
  std::vector<BlockId> nodes;  // The cached block of each entry.
  for (const RestoredBlocks::CachedBlock& entry : restored.cached) {
    if (!has_prefix_cache_) break;
    Content content = ContentOf(entry.parent.has_value() ? std::optional(nodes[*entry.parent]) : std::nullopt,
                                *entry.salt, entry.tokens);
    const auto cached = cached_.find(content);
    nodes.push_back(cached == cached_.end() ? entry.block : cached->second);
    if (cached == cached_.end()) SetCached(entry.block, std::move(content), *entry.salt);
  }
  observer_->OnRestored(restored);
}

std::vector<BlockId> AuditedBlocks::CachedBlocks(const std::string& salt, absl::Span<const TokenId> tokens) const {
  std::vector<BlockId> blocks;
  for (size_t i = 0; (i + 1) * block_size() <= tokens.size(); ++i) {
    const auto below = blocks.empty() ? std::nullopt : std::optional(blocks.back());
    const auto cached = cached_.find(ContentOf(below, salt, tokens.subspan(i * block_size(), block_size())));
    if (cached == cached_.end()) break;
    blocks.push_back(cached->second);
  }
  return blocks;
}

int AuditedBlocks::NumPinned(absl::FunctionRef<bool(const Pin&)> counts, const std::vector<BlockId>& blocks) const {
  std::set<BlockId> pinned(blocks.begin(), blocks.end());
  for (const Pin& pin : pins_) {
    if (counts(pin)) pinned.insert(pin.blocks.begin(), pin.blocks.end());
  }
  return static_cast<int>(pinned.size());
}

void AuditedBlocks::EndPins(absl::FunctionRef<bool(const Pin&)> ends) {
  std::erase_if(pins_, [&](const Pin& pin) {
    if (!ends(pin)) return false;
    for (const BlockId block : pin.blocks) --states_[Value(block)].pins;
    return true;
  });
}

int64_t AuditedBlocks::first_pin_expiry_us() const {
  int64_t first_us = std::numeric_limits<int64_t>::max();
  for (const Pin& pin : pins_) first_us = std::min(first_us, pin.expires_us);
  return first_us;
}

// A pin of the same blocks is renewed, and one of the first of them that ends no later is not needed any more.
absl::StatusOr<int> AuditedBlocks::PinForTenant(const std::string& tenant, double max_share, const std::string& salt,
                                                absl::Span<const TokenId> tokens, int64_t expires_us) {
  const absl::StatusOr<int> pinned = PagedBlockManager::PinForTenant(tenant, max_share, salt, tokens, expires_us);
  observer_->OnPin(tenant, max_share, salt, tokens, expires_us, pinned.value_or(0));
  const std::vector<BlockId> blocks = CachedBlocks(salt, tokens);
  const auto is_of_tenant = [&](const Pin& pin) { return pin.tenant == tenant; };
  int64_t ends_us = expires_us;
  for (const Pin& pin : pins_) {
    if (is_of_tenant(pin) && pin.blocks == blocks) ends_us = std::max(ends_us, pin.expires_us);
  }
  const auto is_replaced = [&](const Pin& pin) {
    return is_of_tenant(pin) && pin.expires_us <= ends_us && pin.blocks.size() <= blocks.size() &&
           std::equal(pin.blocks.begin(), pin.blocks.end(), blocks.begin());
  };
  const auto num_kept = std::count_if(pins_.begin(), pins_.end(), [&](const Pin& pin) { return !is_replaced(pin); });
  const bool fits = NumPinned(is_of_tenant, blocks) <= BlocksOfShare(max_share, max_pinned_blocks_) &&
                    NumPinned([](const Pin&) { return true; }, blocks) <= max_pinned_blocks_ &&
                    num_kept < max_pinned_blocks_;
  const int expected = fits ? static_cast<int>(blocks.size()) * block_size() : 0;
  if (pinned.value_or(0) != expected || pinned.ok() != (fits || blocks.empty())) {
    Complain(pinned.value_or(0), " tokens were pinned for tenant '", tenant, "' in place of ", expected);
  }
  if (!fits || blocks.empty()) return pinned;
  EndPins(is_replaced);
  for (const BlockId block : blocks) ++states_[Value(block)].pins;
  pins_.push_back({tenant, blocks, ends_us});
  return pinned;
}

void AuditedBlocks::ExpirePins(int64_t now_us) {
  PagedBlockManager::ExpirePins(now_us);
  EndPins([now_us](const Pin& pin) { return pin.expires_us <= now_us; });
}

bool AuditedBlocks::EndOnePin() {
  const bool has_ended = PagedBlockManager::EndOnePin();
  const auto first = std::min_element(pins_.begin(), pins_.end(), [](const Pin& a, const Pin& b) {
    return std::tuple(a.expires_us, a.tenant, a.blocks.back()) < std::tuple(b.expires_us, b.tenant, b.blocks.back());
  });
  if (has_ended != (first != pins_.end())) Complain("a pin was ended: ", has_ended);
  if (first != pins_.end()) EndPins([&](const Pin& pin) { return &pin == &*first; });
  return has_ended;
}

bool AuditedBlocks::HoldsBlocks(SequenceId sequence) const {
  const auto it = accounts_.find(sequence);
  return it != accounts_.end() && !it->second.is_swapped;
}

std::vector<AuditedBlocks::CachedPrefix> AuditedBlocks::CachedPrefixes() const {
  std::vector<CachedPrefix> prefixes;
  for (uint32_t last = 0; last < states_.size(); ++last) {
    if (!states_[last].is_cached || states_[last].num_cached_above > 0) continue;
    CachedPrefix& prefix = prefixes.emplace_back(CachedPrefix{.salt = states_[last].salt, .blocks = {}, .tokens = {}});
    for (uint32_t below = last + 1; below != 0; below = states_[below - 1].cached_below) {
      prefix.blocks.push_back(BlockId{below - 1});
    }
    std::reverse(prefix.blocks.begin(), prefix.blocks.end());
    for (const BlockId block : prefix.blocks) {
      const std::string& content = states_[Value(block)].content.second;
      const auto old_size = static_cast<std::ptrdiff_t>(prefix.tokens.size());
      prefix.tokens.resize(prefix.tokens.size() + block_size());
      std::memcpy(&prefix.tokens[old_size], content.data() + prefix.salt.size() + 1, block_size() * sizeof(TokenId));
    }
  }
  return prefixes;
}

absl::Status AuditedBlocks::CheckAll() const {
  QUIRE_RETURN_IF_ERROR(CheckIntegrity());
  BlockCounts expected;
  for (const BlockState& state : states_) {
    const int held = state.owners + state.copies + state.pins;
    if (state.pins > 0) ++expected.pinned;
    ++expected.total;
    if (held > 0) ++expected.used;
    if (held > 1) ++expected.shared;
    if (held == 0) ++(state.is_cached ? expected.evictable : expected.free);
  }
  for (const int owners : host_owners_) {
    ++expected.host_total;
    if (owners > 0) ++expected.host_used;
  }
  if (num_evictions_ != num_evictions()) {
    return absl::InternalError(
        absl::StrCat(num_evictions(), " evictions counted, ", num_evictions_, " cached blocks were handed out"));
  }
  const BlockCounts found = counts();
  const auto key = [](const BlockCounts& c) {
    return std::tuple(c.total, c.free, c.evictable, c.used, c.shared, c.host_used, c.host_total, c.pinned);
  };
  if (key(found) == key(expected)) return absl::OkStatus();
  const auto print = [](const BlockCounts& c) {
    return absl::StrCat(c.total, " blocks, ", c.free, " free, ", c.evictable, " evictable, ", c.used, " used, ",
                        c.shared, " shared, ", c.pinned, " pinned, ", c.host_used, " of ", c.host_total,
                        " host blocks");
  };
  return absl::InternalError(absl::StrCat("the manager counts ", print(found), "; there are ", print(expected)));
}

}  // namespace quire
