// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_VOCABULARY_H_
#define QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_VOCABULARY_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "kv_manager/tokenizer/prefix_trie.h"
#include "kv_manager/tokenizer/sentencepiece_model.h"

namespace quire {

// The pieces of a SentencePiece model by their text. Thread-safe. Objects do not move, because they hold views of their
// own pieces.
class SentencePieceVocabulary {
 public:
  using Piece = SentencePieceModel::Piece;
  using Type = SentencePieceModel::Type;

  // InvalidArgument when a piece is given twice, when there is not exactly one unknown piece, or when the byte pieces
  // do not fit byte_fallback (all 256 or none).
  static absl::StatusOr<std::unique_ptr<SentencePieceVocabulary>> Create(const SentencePieceModel& model);
  SentencePieceVocabulary(const SentencePieceVocabulary&) = delete;
  SentencePieceVocabulary& operator=(const SentencePieceVocabulary&) = delete;

  // Returns the id of a piece that text can become (normal, user-defined or unused), or -1 when there is none.
  TokenId FindText(std::string_view piece) const { return Find(text_ids_, piece); }
  // Returns the id of any piece, or -1 when there is none.
  TokenId FindAny(std::string_view piece) const;

  size_t size() const { return pieces_.size(); }
  // REQUIRES: 0 <= id < size().
  const Piece& piece(TokenId id) const { return pieces_[id]; }
  Type type(TokenId id) const { return pieces_[id].type; }

  TokenId unk() const { return unk_; }
  bool has_bytes() const { return !byte_tokens_.empty(); }
  TokenId byte_token(unsigned char byte) const { return byte_tokens_[byte]; }
  // REQUIRES: type(id) is kByte.
  char byte(TokenId id) const { return bytes_.at(id); }

  const PrefixTrie& user_defined() const { return user_defined_; }
  // Control and unknown pieces.
  const PrefixTrie& special() const { return special_; }

 private:
  using Ids = absl::flat_hash_map<absl::string_view, TokenId>;

  SentencePieceVocabulary() = default;
  static TokenId Find(const Ids& ids, std::string_view piece) {
    const auto it = ids.find(absl::string_view(piece.data(), piece.size()));
    return it == ids.end() ? -1 : it->second;
  }
  absl::Status AddPiece(TokenId id);
  absl::Status AddByte(TokenId id);

  std::vector<Piece> pieces_;
  Ids text_ids_;      // Ids of normal, user-defined and unused pieces.
  Ids reserved_ids_;  // Ids of control, unknown and byte pieces.
  TokenId unk_ = -1;
  std::vector<TokenId> byte_tokens_;  // [256], or empty without byte fallback
  absl::flat_hash_map<TokenId, char> bytes_;
  PrefixTrie user_defined_;
  PrefixTrie special_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_VOCABULARY_H_
