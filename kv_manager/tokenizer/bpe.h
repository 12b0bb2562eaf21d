// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_BPE_H_
#define QUIRE_KV_MANAGER_TOKENIZER_BPE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/model.h"

namespace quire {

// Byte pair encoding with ranked merges, as in a tokenizer.json. A word starts as its characters. The adjacent pair
// with the lowest rank (the leftmost of equals) is merged, until no pair has a rank.
class Bpe : public TokenModel {
 public:
  struct Options {
    std::string unk_token;       // When empty, unknown characters are dropped.
    bool fuse_unk = false;       // A run of unknown characters gives one unknown token.
    bool byte_fallback = false;  // An unknown character becomes its bytes, <0x00> to <0xFF>.
    bool ignore_merges = false;  // A word that is in the vocabulary becomes that token without merging.
    std::string continuing_subword_prefix;
    std::string end_of_word_suffix;
  };
  using Merge = std::pair<std::string, std::string>;

  // `merges` are ordered by rank. InvalidArgument when a merge is not in the vocabulary.
  static absl::StatusOr<std::unique_ptr<Bpe>> Create(Vocabulary vocabulary, const std::vector<Merge>& merges,
                                                     Options options);

  // O(n log n) in the length of the word.
  absl::Status Encode(std::string_view word, std::vector<TokenId>* tokens) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  TokenId unk() const override { return unk_; }

 private:
  struct Ranked {
    uint32_t rank;
    TokenId merged;
  };
  struct Symbol;
  struct Candidate;

  Bpe(Vocabulary vocabulary, Options options) : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

  absl::Status SplitIntoSymbols(std::string_view word, std::vector<Symbol>* symbols) const;
  bool AppendBytes(std::string_view character, std::vector<Symbol>* symbols) const;
  void MergeSymbols(std::vector<Symbol>* symbols) const;
  const Ranked* FindMerge(TokenId left, TokenId right) const;

  Vocabulary vocabulary_;
  Options options_;
  TokenId unk_ = kNoToken;
  std::vector<TokenId> byte_tokens_;              // [256], kNoToken for bytes that are not in the vocabulary
  absl::flat_hash_map<uint64_t, Ranked> merges_;  // Keyed by left id << 32 | right id.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_BPE_H_
