// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_UNIGRAM_H_
#define QUIRE_KV_MANAGER_TOKENIZER_UNIGRAM_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/model.h"
#include "kv_manager/tokenizer/unigram_lattice.h"

namespace quire {

// The unigram model of a tokenizer.json. A run of unknown characters becomes one unknown token, or its bytes.
class Unigram : public TokenModel {
 public:
  struct Options {
    TokenId unk = kNoToken;      // With kNoToken, unknown characters are an error.
    bool byte_fallback = false;  // Unknown characters become their bytes, <0x00> to <0xFF>.
  };

  // `scores` are indexed by token id. InvalidArgument when a score is not finite or `unk` is not in the vocabulary.
  static absl::StatusOr<std::unique_ptr<Unigram>> Create(Vocabulary vocabulary, const std::vector<double>& scores,
                                                         Options options);

  absl::Status Encode(std::string_view word, std::vector<TokenId>* tokens) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  TokenId unk() const override { return options_.unk; }

 private:
  Unigram(Vocabulary vocabulary, const std::vector<UnigramLattice::Piece>& pieces, double unk_score, Options options);

  absl::Status AppendPiece(std::string_view piece, std::vector<TokenId>* tokens) const;

  Vocabulary vocabulary_;
  UnigramLattice lattice_;
  Options options_;
  std::vector<TokenId> byte_tokens_;  // [256]
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_UNIGRAM_H_
