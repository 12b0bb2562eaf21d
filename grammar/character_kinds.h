// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_CHARACTER_KINDS_H_
#define QUIRE_GRAMMAR_CHARACTER_KINDS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "grammar/byte_trie.h"

namespace quire::grammar {

// A set of kinds of characters, one bit for each. Lower-case letters, upper-case letters and digits are kinds, and so
// is each mark in ASCII. The control characters without a bit of their own are one kind, and so are all characters
// beyond ASCII.
using CharacterKinds = uint64_t;
inline constexpr CharacterKinds kBeyondAscii = CharacterKinds{1} << 40;
// Bytes that are not whole characters in UTF-8.
inline constexpr CharacterKinds kBrokenText = CharacterKinds{1} << 41;
inline constexpr CharacterKinds kAsciiKinds = kBeyondAscii - 1;

// The kind of each character in ASCII, by byte.
const std::array<CharacterKinds, 128>& KindsOfAscii();

// The texts that lead from a node of a trie to the tokens below it.
struct Suffixes {
  CharacterKinds kinds = 0;  // Kinds of all their characters.
  int max_characters = 0;    // Characters of the longest suffix.
};

// Knows the suffixes of all nodes of a trie. With it, a walk takes all tokens below a node at once if all their
// characters may follow. Immutable; thread-safe.
class SuffixTable {
 public:
  SuffixTable() = default;
  explicit SuffixTable(const ByteTrie& trie);

  // The kinds contain kBrokenText if the text of the node, or of a token below it, is not whole characters.
  Suffixes of(int node) const { return suffixes_[static_cast<size_t>(node)]; }
  // The number of whole characters in the text of a node, and in the text of the token at a place.
  int characters(int node) const { return node_characters_[static_cast<size_t>(node)]; }
  int token_characters(int place) const { return token_characters_[static_cast<size_t>(place)]; }

 private:
  std::vector<Suffixes> suffixes_;          // [nodes]
  std::vector<uint16_t> node_characters_;   // [nodes]
  std::vector<uint16_t> token_characters_;  // [tokens], in the order of the trie.
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_CHARACTER_KINDS_H_
