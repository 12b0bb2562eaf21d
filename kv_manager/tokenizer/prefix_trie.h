// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_PREFIX_TRIE_H_
#define QUIRE_KV_MANAGER_TOKENIZER_PREFIX_TRIE_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace quire {

// A set of strings, each with a token id. A search finds those that a text starts with, byte by byte. Thread-safe once
// it is built.
class PrefixTrie {
 public:
  PrefixTrie() = default;
  // Empty strings are ignored, and the last one of equal strings counts. The memory is proportional to the bytes of the
  // strings.
  explicit PrefixTrie(std::vector<std::pair<std::string_view, TokenId>> strings);

  // Calls visit(num_bytes, id) for each string that `text` starts with, from the shortest to the longest.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    int32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<unsigned char>(text[i]));
      if (node < 0) return;
      if (nodes_[node].id >= 0) visit(i + 1, nodes_[node].id);
    }
  }

  // Returns (num_bytes, id) of the longest string that `text` starts with. num_bytes is 0 when there is none.
  std::pair<size_t, TokenId> FindLongest(std::string_view text) const;

  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    TokenId id = -1;          // The id of the string that ends here, or -1.
    uint32_t first_edge = 0;  // The edges of a node are adjacent and sorted by label.
    uint32_t num_edges = 0;
  };
  struct Edge {
    unsigned char label;
    int32_t node;
  };

  int32_t Child(int32_t node, unsigned char label) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<Edge> edges_;
  // Indexed by label. Most searches end at the root.
  std::vector<int32_t> root_children_ = std::vector<int32_t>(256, -1);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_PREFIX_TRIE_H_
