// SPDX-License-Identifier: Apache-2.0

#include "grammar/byte_trie.h"

#include <algorithm>

namespace quire::grammar {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, TokenId>> texts) {
  std::erase_if(texts, [](const auto& text) { return text.first.empty() || text.first.size() > kMaxTextBytes; });
  std::sort(texts.begin(), texts.end());
  tokens_.reserve(texts.size());
  for (const auto& [text, token] : texts) {
    tokens_.push_back(token);
    max_depth_ = std::max(max_depth_, static_cast<int>(text.size()));
  }
  // A node and its children are made from the texts that begin with its text, which stand side by side.
  struct Group {
    int node;
    size_t depth;
  };
  std::vector<Group> groups;
  const auto add_children = [&](size_t first, size_t last, size_t depth) {
    const int first_child = num_nodes();
    while (first < last) {
      const char byte = texts[first].first[depth];
      const auto end = std::partition_point(
          texts.begin() + static_cast<ptrdiff_t>(first), texts.begin() + static_cast<ptrdiff_t>(last),
          [&](const auto& text) { return static_cast<uint8_t>(text.first[depth]) <= static_cast<uint8_t>(byte); });
      const size_t begin = std::exchange(first, static_cast<size_t>(end - texts.begin()));
      nodes_.push_back({.byte = static_cast<uint8_t>(byte),
                        .num_children = 0,
                        .first_child = 0,
                        .first_token = static_cast<int32_t>(begin),
                        .last_token = static_cast<int32_t>(first)});
    }
    // The first child is on top, so that its children come first.
    for (int child = num_nodes(); child-- > first_child;) groups.push_back({child, depth + 1});
    return first_child;
  };
  add_children(0, texts.size(), 0);
  num_roots_ = num_nodes();
  while (!groups.empty()) {
    const auto [index, depth] = groups.back();
    groups.pop_back();
    size_t first = static_cast<size_t>(node(index).first_token);
    const size_t last = static_cast<size_t>(node(index).last_token);
    while (first < last && texts[first].first.size() == depth) ++first;
    if (first == last) continue;
    const int first_child = add_children(first, last, depth);
    nodes_[static_cast<size_t>(index)].first_child = first_child;
    nodes_[static_cast<size_t>(index)].num_children = static_cast<uint16_t>(num_nodes() - first_child);
  }
}

}  // namespace quire::grammar
