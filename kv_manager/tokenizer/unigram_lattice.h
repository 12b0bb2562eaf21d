// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_UNIGRAM_LATTICE_H_
#define QUIRE_KV_MANAGER_TOKENIZER_UNIGRAM_LATTICE_H_

#include <string_view>
#include <utility>
#include <vector>

#include "kv_manager/tokenizer/prefix_trie.h"

namespace quire {

// The search of a unigram language model (Kudo 2018). It finds the segmentation of a text into pieces with the largest
// sum of scores. A character that is no piece itself may be an unknown piece. Thread-safe.
class UnigramLattice {
 public:
  // The references round differently, which decides between segmentations of (almost) equal score: tokenizers 0.23 adds
  // in double precision, SentencePiece 0.2.3 in single precision.
  enum class Arithmetic { kDouble, kSingle };

  struct Piece {
    std::string_view piece;
    TokenId id;
    double score;
  };
  struct Segment {
    size_t begin;  // Offset in the text, in bytes.
    size_t end;
    TokenId id;
  };

  // `unk_score` is the score of each unknown character, whose segment gets the id `unk`.
  UnigramLattice(const std::vector<Piece>& pieces, TokenId unk, double unk_score, Arithmetic arithmetic);

  // Returns the best segmentation of valid UTF-8, from left to right. Of equal ones it is the one whose last differing
  // segment starts first. O(length of the text * longest piece).
  std::vector<Segment> FindBest(std::string_view text) const;

 private:
  PrefixTrie trie_;
  std::vector<double> scores_;  // Indexed by token id.
  TokenId unk_;
  double unk_score_;
  Arithmetic arithmetic_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_UNIGRAM_LATTICE_H_
