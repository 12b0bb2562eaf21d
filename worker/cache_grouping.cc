// SPDX-License-Identifier: Apache-2.0

#include "worker/cache_grouping.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "base/worker_protocol.h"

namespace quire {
namespace {

// Limit for the columns of block tables. A worker builds a table for each column in each step.
constexpr int kMaxColumns = 8;
// Least length of the sequence whose bytes decide.
constexpr int kLongSequence = 8192;

// The layers of a cache group.
struct Members {
  int window;  // 0: the group keeps all tokens.
  std::vector<int> layers;
};

// Returns the groups by rising window. Without a layer that keeps all tokens, or without a window, there are none.
std::vector<Members> MembersOf(const ModelConfig& config, int block_size) {
  std::map<int, std::vector<int>> by_window;
  for (int i = 0; i < config.num_layers; ++i) {
    const int window = config.layers[i].window;
    const bool keeps_all = window < block_size || window >= config.max_position_embeddings;
    by_window[keeps_all ? 0 : window].push_back(i);
  }
  if (!by_window.contains(0) || by_window.size() == 1 || by_window.size() > kMaxCacheGroups) return {};
  std::vector<Members> groups;
  for (auto& [window, layers] : by_window) groups.push_back({window, std::move(layers)});
  return groups;
}

// Returns the cache groups whose blocks have this number of slots. Group 0 has one block per sheet.
std::vector<CacheGroup> GroupsWith(const std::vector<Members>& members, int num_slots) {
  std::vector<CacheGroup> groups;
  for (const Members& group : members) {
    const int num_layers = static_cast<int>(group.layers.size());
    groups.push_back({.window_tokens = group.window, .blocks_per_sheet = (num_layers + num_slots - 1) / num_slots});
  }
  return groups;
}

}  // namespace

void DivideByWindows(int block_size, int max_slice_tokens, ModelConfig* config) {
  const std::vector<Members> members = MembersOf(*config, block_size);
  if (members.empty()) return;
  const int64_t length = std::min(config->max_position_embeddings, std::max(kLongSequence, 2 * members.back().window));
  int64_t least_slots = config->num_layers * CacheGroups(block_size).NumBlocks(length);
  int best = 0;
  // More slots come first: if two numbers of slots take equally many bytes, the one with fewer columns is better.
  for (int num_slots = config->num_layers; num_slots >= static_cast<int>(members[0].layers.size()); --num_slots) {
    const std::vector<CacheGroup> groups = GroupsWith(members, num_slots);
    int num_columns = 0;
    for (const CacheGroup& group : groups) num_columns += group.blocks_per_sheet;
    if (num_columns > kMaxColumns) break;
    const int64_t slots = num_slots * CacheGroups(block_size, groups, max_slice_tokens).NumBlocks(length);
    if (slots >= least_slots) continue;
    least_slots = slots;
    best = num_slots;
  }
  if (best == 0) return;
  config->cache_groups = GroupsWith(members, best);
  int first_column = 0;
  for (size_t group = 0; group < members.size(); ++group) {
    for (size_t i = 0; i < members[group].layers.size(); ++i) {
      LayerConfig& layer = config->layers[members[group].layers[i]];
      layer.column = first_column + static_cast<int>(i) / best;
      layer.slot = static_cast<int>(i) % best;
    }
    first_column += config->cache_groups[group].blocks_per_sheet;
  }
}

}  // namespace quire
