// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/fork_tree.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace quire {
namespace {

using Tables = absl::Span<const std::vector<BlockId>>;

// Groups the tables by their entry at `index`, in the order of first appearance. A table that ends there is a group of
// its own.
std::vector<std::vector<int>> SplitAt(Tables tables, const std::vector<int>& sequences, size_t index) {
  std::vector<std::vector<int>> parts;
  for (const int sequence : sequences) {
    const auto it = std::find_if(parts.begin(), parts.end(), [&](const std::vector<int>& part) {
      const std::vector<BlockId>& other = tables[part.front()];
      return tables[sequence].size() > index && other.size() > index && other[index] == tables[sequence][index];
    });
    it == parts.end() ? parts.push_back({sequence}) : it->push_back(sequence);
  }
  return parts;
}

// The length of the prefix that all tables share. REQUIRES: they share the first `begin` entries.
size_t EndOfCommonPart(Tables tables, const std::vector<int>& sequences, size_t begin) {
  const std::vector<BlockId>& first = tables[sequences.front()];
  size_t end = first.size();
  for (const int sequence : sequences) {
    const std::vector<BlockId>& table = tables[sequence];
    const size_t limit = std::min(end, table.size());
    end = std::mismatch(first.begin() + begin, first.begin() + limit, table.begin() + begin).first - first.begin();
  }
  return end;
}

}  // namespace

std::vector<ForkNode> BuildForkTree(Tables tables) {
  std::vector<int> all;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (!tables[i].empty()) all.push_back(static_cast<int>(i));
  }
  std::vector<ForkNode> nodes;
  const auto add_parts = [&](int parent, const std::vector<int>& sequences, size_t index) {
    for (std::vector<int>& part : SplitAt(tables, sequences, index)) {
      const size_t end = EndOfCommonPart(tables, part, index);
      nodes.push_back({parent, std::move(part), static_cast<int>(index), static_cast<int>(end - index)});
    }
  };
  add_parts(-1, all, 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].sequences.size() == 1) continue;
    const std::vector<int> sequences = nodes[i].sequences;
    const size_t end = nodes[i].first_block + nodes[i].num_blocks;
    const bool all_end =
        std::all_of(sequences.begin(), sequences.end(), [&](int sequence) { return tables[sequence].size() == end; });
    if (!all_end) add_parts(static_cast<int>(i), sequences, end);
  }
  return nodes;
}

}  // namespace quire
