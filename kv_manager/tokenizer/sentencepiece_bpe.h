// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_BPE_H_
#define QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_BPE_H_

#include <functional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kv_manager/tokenizer/prefix_trie.h"

namespace quire {

// SentencePiece's byte pair encoding. There are no merge rules: two neighbours merge when their joined text is a piece,
// and the piece with the highest score (the leftmost of equals) comes first. Thread-safe.
class SentencePieceBpe {
 public:
  // A piece that neighbours may be merged into.
  struct Merged {
    TokenId id;  // -1 when the text is no such piece.
    float score;
    bool is_unused;  // The piece is split again at the end.
  };
  using Lookup = std::function<Merged(std::string_view)>;

  // `lookup` must stay valid. User-defined pieces are found first and never merged.
  SentencePieceBpe(Lookup lookup, const PrefixTrie* user_defined)
      : lookup_(std::move(lookup)), user_defined_(user_defined) {}

  // Returns the parts of `text` (valid UTF-8), in order. O(n log n).
  std::vector<std::string_view> Segment(std::string_view text) const;

 private:
  struct Symbol;
  struct Candidate;
  class Merger;

  Lookup lookup_;
  const PrefixTrie* user_defined_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_BPE_H_
