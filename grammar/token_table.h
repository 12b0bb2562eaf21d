// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_TOKEN_TABLE_H_
#define QUIRE_GRAMMAR_TOKEN_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "grammar/byte_trie.h"
#include "grammar/character_kinds.h"

namespace quire::grammar {

// Returns the bytes that a special token has in a TokenTable: its name between two bytes 0xFF, which no text has. So
// only a grammar that names the token allows it.
std::string SpecialTokenBytes(std::string_view name);

// The bytes that the tokens of a vocabulary stand for. Immutable; thread-safe.
class TokenTable {
 public:
  // `bytes` has the bytes of each token, [vocab_size]. A token without bytes is never allowed by a grammar, unless it
  // is an end token. End tokens are allowed where a text may end, and nowhere else.
  TokenTable(std::vector<std::string> bytes, std::vector<TokenId> end_tokens);
  TokenTable(const TokenTable&) = delete;
  TokenTable& operator=(const TokenTable&) = delete;

  int vocab_size() const { return static_cast<int>(bytes_.size()); }
  // The bytes of an end token count as none. REQUIRES: 0 <= token < vocab_size().
  std::string_view bytes(TokenId token) const { return bytes_[static_cast<size_t>(token)]; }
  bool is_end(TokenId token) const;
  absl::Span<const TokenId> end_tokens() const { return end_tokens_; }
  const ByteTrie& trie() const { return trie_; }
  const SuffixTable& suffixes() const { return suffixes_; }  // Suffixes of the trie.

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenId> end_tokens_;  // Sorted.
  ByteTrie trie_;
  SuffixTable suffixes_;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_TOKEN_TABLE_H_
