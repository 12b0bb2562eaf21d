#ifndef QUIRE_GRAMMAR_BYTE_TRIE_H_
#define QUIRE_GRAMMAR_BYTE_TRIE_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"

namespace quire::grammar {

// Texts with the tokens that stand for them, as a tree in the order of a walk that visits parents before children. Node
// i has the texts of its parent with one more byte. A walk that is not interested in a node goes on at its `end`.
// Immutable; thread-safe.
class ByteTrie {
 public:
  struct Node {
    uint8_t byte;
    uint16_t depth;       // The length of its text, at least 1.
    int32_t end;          // The first node behind this one and all below it.
    int32_t first_token;  // The place of its first token. Those of the nodes below it follow.
  };

  ByteTrie() = default;
  // The texts are in any order, and several may be equal. Empty ones, and those of more than kMaxTextBytes, are left
  // out.
  explicit ByteTrie(std::vector<std::pair<std::string_view, TokenId>> texts);

  static constexpr size_t kMaxTextBytes = 4096;

  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  const Node& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  // The tokens whose text is that of the node.
  absl::Span<const TokenId> tokens(int index) const { return TokensBefore(index, index + 1); }
  // The tokens of the node and of all below it.
  absl::Span<const TokenId> tokens_below(int index) const { return TokensBefore(index, node(index).end); }
  int max_depth() const { return max_depth_; }
  size_t num_bytes() const { return nodes_.size() * sizeof(Node) + tokens_.size() * sizeof(TokenId); }

 private:
  absl::Span<const TokenId> TokensBefore(int index, int end) const {
    const int32_t first = node(index).first_token;
    const int32_t last = end < num_nodes() ? node(end).first_token : static_cast<int32_t>(tokens_.size());
    return absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
  }

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  int max_depth_ = 0;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_BYTE_TRIE_H_
