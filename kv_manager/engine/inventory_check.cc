// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/inventory_check.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kv_manager/worker_link/cache_root.h"
#include "scheduler/beam_search_state.h"

namespace quire {
namespace {

// Later sequences get greater ids.
constexpr uint64_t kMaxSequenceId = uint64_t{1} << 62;

}  // namespace

InventoryCheck::InventoryCheck(const WorkerInventory& inventory, int num_blocks, int block_size)
    : inventory_(inventory), block_size_(block_size), labels_(num_blocks, kNone) {
  using Content = std::tuple<int, int, absl::Span<const TokenId>>;  // Content before it, root, tokens.
  absl::flat_hash_map<Content, int> known;
  contents_.reserve(inventory.labels.size());
  for (int i = 0; i < static_cast<int>(inventory.labels.size()); ++i) {
    const WorkerInventory::Label& label = inventory.labels[i];
    const int parent = label.parent.has_value() ? contents_[*label.parent] : kNone;
    contents_.push_back(known.try_emplace(Content(parent, label.root, label.tokens), i).first->second);
    if (!label.is_host) labels_[Value(label.block)] = i;
  }
  for (const std::string& root : inventory.roots) salts_.push_back(SaltOfRoot(root));
}

bool InventoryCheck::IsLabelOf(const WorkerInventory::Label& label, int parent, const WorkerInventory::Row& row,
                               int first_token, int num_tokens) const {
  const int label_parent = label.parent.has_value() ? contents_[*label.parent] : kNone;
  if (label_parent != parent || label.root != row.root || static_cast<int>(label.tokens.size()) < num_tokens) {
    return false;
  }
  return std::equal(label.tokens.begin(), label.tokens.begin() + num_tokens, row.tokens.begin() + first_token);
}

int InventoryCheck::NumStored(const WorkerInventory::Row& row) const {
  int num_stored = 0;
  int parent = kNone;
  for (const BlockId block : row.blocks) {
    const int num_tokens = std::min(block_size_, row.num_computed - num_stored);
    const int label = labels_[Value(block)];
    if (num_tokens <= 0 || label == kNone) break;
    if (!IsLabelOf(inventory_.labels[label], parent, row, num_stored, num_tokens)) break;
    num_stored += num_tokens;
    parent = contents_[label];
  }
  return num_stored;
}

std::optional<std::string> InventoryCheck::SaltOf(const WorkerInventory::Row& row) const {
  return row.root.has_value() ? salts_[*row.root] : std::nullopt;
}

std::vector<RestoredBlocks::CachedBlock> InventoryCheck::CachedBlocks(absl::Span<const RestoredBlocks::Table> tables,
                                                                      absl::flat_hash_set<BlockId> next_blocks) const {
  for (const RestoredBlocks::Table& table : tables) {
    if (table.num_stored % block_size_ != 0) next_blocks.insert(table.blocks.back());
  }
  for (const RestoredBlocks::Table& table : tables) {
    for (int i = 0; i < table.num_stored / block_size_; ++i) next_blocks.erase(table.blocks[i]);
  }
  std::vector<RestoredBlocks::CachedBlock> cached;
  absl::flat_hash_map<int, int> by_content;  // Indices into `cached`.
  for (size_t i = 0; i < inventory_.labels.size(); ++i) {
    const WorkerInventory::Label& label = inventory_.labels[i];
    if (label.is_host || static_cast<int>(label.tokens.size()) < block_size_ || next_blocks.contains(label.block)) {
      continue;
    }
    if (!salts_[label.root].has_value() || by_content.contains(contents_[i])) continue;
    std::optional<int> parent;
    if (label.parent.has_value()) {
      const auto found = by_content.find(contents_[*label.parent]);
      if (found == by_content.end()) continue;  // The content before it is not cached.
      parent = found->second;
    }
    by_content.emplace(contents_[i], static_cast<int>(cached.size()));
    cached.push_back({label.block, parent, &*salts_[label.root], label.tokens});
  }
  return cached;
}

namespace {

// Keeps the row with most tokens of each sample, or of each beam.
void DropOldRows(RowsOfRequest* request, std::vector<const WorkerInventory::Row*>* others) {
  std::vector<const WorkerInventory::Row*> kept;
  absl::flat_hash_map<uint64_t, size_t> places;  // Indices into `kept`.
  for (const WorkerInventory::Row* row : request->rows) {
    const uint64_t name = request->search.empty() ? row->sample_index : Value(row->sequence);
    const auto [place, is_new] = places.try_emplace(name, kept.size());
    if (is_new) {
      kept.push_back(row);
      continue;
    }
    const WorkerInventory::Row*& same = kept[place->second];
    const bool counts =
        std::pair(row->tokens.size(), row->num_computed) > std::pair(same->tokens.size(), same->num_computed);
    others->push_back(counts ? std::exchange(same, row) : row);
  }
  request->rows = std::move(kept);
}

}  // namespace

std::vector<RowsOfRequest> FindRequests(const WorkerInventory& inventory,
                                        std::vector<const WorkerInventory::Row*>* others) {
  std::vector<RowsOfRequest> requests;
  absl::flat_hash_map<absl::string_view, size_t> by_record;
  const auto has_prompt_of = [](const WorkerInventory::Row& row, const WorkerInventory::Row& other) {
    return row.prompt_length == other.prompt_length &&
           std::equal(row.tokens.begin(), row.tokens.begin() + row.prompt_length, other.tokens.begin());
  };
  for (const WorkerInventory::Row& row : inventory.rows) {
    const std::optional<RowRecord> record = ReadRowRecord(row.record);
    if (!record.has_value() || Value(row.sequence) > kMaxSequenceId) {
      others->push_back(&row);
      continue;
    }
    const auto [entry, is_new] = by_record.try_emplace(record->request, requests.size());
    if (is_new) requests.push_back({.record = *record, .first = &row, .search = {}, .rows = {}});
    RowsOfRequest& request = requests[entry->second];
    if (!has_prompt_of(row, *request.first)) {
      others->push_back(&row);
      continue;
    }
    request.rows.push_back(&row);
    request.record.num_moves = std::max(request.record.num_moves, record->num_moves);
    if (NumGeneratedOf(record->search).value_or(0) > NumGeneratedOf(request.search).value_or(0)) {
      request.search = record->search;
    }
  }
  for (RowsOfRequest& request : requests) DropOldRows(&request, others);
  // No two sequences have the same id. When a worker says otherwise, the later rows do not count.
  absl::flat_hash_set<SequenceId> ids;
  for (RowsOfRequest& request : requests) {
    std::erase_if(request.rows, [&](const WorkerInventory::Row* row) {
      const bool is_new = ids.insert(row->sequence).second;
      if (!is_new) others->push_back(row);
      return !is_new;
    });
    std::sort(request.rows.begin(), request.rows.end(), [](const auto* a, const auto* b) {
      return std::pair(a->sample_index, a->sequence) < std::pair(b->sample_index, b->sequence);
    });
  }
  return requests;
}

SequenceId LastSequence(const WorkerInventory& inventory) {
  uint64_t last = 0;
  for (const WorkerInventory::Row& row : inventory.rows) {
    if (Value(row.sequence) <= kMaxSequenceId) last = std::max(last, Value(row.sequence));
  }
  return SequenceId{last};
}

}  // namespace quire
