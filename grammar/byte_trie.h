// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_BYTE_TRIE_H_
#define QUIRE_GRAMMAR_BYTE_TRIE_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"

namespace quire::grammar {

// Texts with the tokens that stand for them, as a tree. A node has the texts of its parent with one more byte. The
// children of a node stand side by side in memory, so a walk reads little memory for children that it does not enter.
// Immutable; thread-safe.
class ByteTrie {
 public:
  struct Node {
    uint8_t byte;
    uint16_t num_children;
    int32_t first_child;  // All children of a node come after it.
    int32_t first_token;  // The place of its first token. Tokens of the nodes below it follow.
    int32_t last_token;   // The place behind the last token of the nodes below it.
  };

  static constexpr size_t kMaxTextBytes = 4096;

  ByteTrie() = default;
  // The texts are in any order, and several may be equal. Empty texts, and texts of more than kMaxTextBytes, are left
  // out.
  explicit ByteTrie(std::vector<std::pair<std::string_view, TokenId>> texts);

  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  const Node& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  // The number of nodes without a parent, which are the first ones.
  int num_roots() const { return num_roots_; }
  // The tokens whose text equals the text of the node.
  absl::Span<const TokenId> tokens(int index) const {
    const Node& at = node(index);
    return TokensBetween(at.first_token, at.num_children > 0 ? node(at.first_child).first_token : at.last_token);
  }
  int num_tokens() const { return static_cast<int>(tokens_.size()); }
  TokenId token(int place) const { return tokens_[static_cast<size_t>(place)]; }
  int max_depth() const { return max_depth_; }
  size_t num_bytes() const { return nodes_.size() * sizeof(Node) + tokens_.size() * sizeof(TokenId); }

  // Calls visit(index, depth) for the nodes in the order of their texts, parents before children. `depth` is the length
  // of the text of the node, at least 1. The children of a node are visited only if visit() has returned true for it.
  template <typename Visit>
  void Walk(Visit visit) const {
    struct Siblings {
      int next;
      int end;
    };
    std::vector<Siblings> levels(static_cast<size_t>(max_depth_) + 1);  // [depth - 1]
    levels[0] = {0, num_roots_};
    for (size_t depth = 1; depth > 0;) {
      Siblings& siblings = levels[depth - 1];
      if (siblings.next == siblings.end) {
        --depth;
        continue;
      }
      const int index = siblings.next++;
      const Node& at = node(index);
      if (!visit(index, depth) || at.num_children == 0) continue;
      levels[depth++] = {at.first_child, at.first_child + at.num_children};
    }
  }

 private:
  absl::Span<const TokenId> TokensBetween(int32_t first, int32_t last) const {
    return absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
  }

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // In the order of their texts.
  int num_roots_ = 0;
  int max_depth_ = 0;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_BYTE_TRIE_H_
