// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/prefix_trie.h"

#include <algorithm>

namespace quire {

PrefixTrie::PrefixTrie(std::vector<std::pair<std::string_view, TokenId>> strings) {
  std::stable_sort(strings.begin(), strings.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // The trie is built breadth first, so that the edges of a node are adjacent. A node represents the strings [begin,
  // end) of the sorted list, which share their first `depth` bytes.
  struct Work {
    size_t begin;
    size_t end;
    size_t depth;
  };
  std::vector<Work> work = {{0, strings.size(), 0}};
  for (size_t node = 0; node < work.size(); ++node) {
    auto [begin, end, depth] = work[node];
    for (; begin < end && strings[begin].first.size() == depth; ++begin) {
      if (depth > 0) nodes_[node].id = strings[begin].second;
    }
    nodes_[node].first_edge = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char label = strings[begin].first[depth];
      size_t next = begin;
      while (next < end && strings[next].first[depth] == label) ++next;
      edges_.push_back({static_cast<unsigned char>(label), static_cast<int32_t>(nodes_.size())});
      nodes_.emplace_back();
      work.push_back({begin, next, depth + 1});
      begin = next;
    }
    nodes_[node].num_edges = static_cast<uint32_t>(edges_.size()) - nodes_[node].first_edge;
  }
  for (uint32_t i = 0; i < nodes_[0].num_edges; ++i) root_children_[edges_[i].label] = edges_[i].node;
}

std::pair<size_t, TokenId> PrefixTrie::FindLongest(std::string_view text) const {
  std::pair<size_t, TokenId> longest = {0, -1};
  ForEachPrefix(text, [&](size_t num_bytes, TokenId id) { longest = {num_bytes, id}; });
  return longest;
}

int32_t PrefixTrie::Child(int32_t node, unsigned char label) const {
  if (node == 0) return root_children_[label];
  const Edge* begin = edges_.data() + nodes_[node].first_edge;
  const Edge* end = begin + nodes_[node].num_edges;
  const Edge* edge = std::lower_bound(begin, end, label, [](const Edge& e, unsigned char l) { return e.label < l; });
  return edge != end && edge->label == label ? edge->node : -1;
}

}  // namespace quire
