// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/sentencepiece_vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace quire {

absl::StatusOr<std::unique_ptr<SentencePieceVocabulary>> SentencePieceVocabulary::Create(
    const SentencePieceModel& model) {
  std::unique_ptr<SentencePieceVocabulary> vocabulary(new SentencePieceVocabulary());
  vocabulary->pieces_ = model.pieces;
  if (model.byte_fallback) vocabulary->byte_tokens_.assign(256, -1);
  std::vector<std::pair<std::string_view, TokenId>> user_defined;
  std::vector<std::pair<std::string_view, TokenId>> special;
  for (size_t i = 0; i < vocabulary->pieces_.size(); ++i) {
    const TokenId id = static_cast<TokenId>(i);
    QUIRE_RETURN_IF_ERROR(vocabulary->AddPiece(id));
    const Piece& piece = vocabulary->pieces_[i];
    if (piece.type == Type::kUserDefined) user_defined.emplace_back(piece.text, id);
    if (piece.type == Type::kControl || piece.type == Type::kUnknown) special.emplace_back(piece.text, id);
  }
  if (vocabulary->unk_ == -1) return absl::InvalidArgumentError("tokenizer.model: has no unknown piece");
  const auto& bytes = vocabulary->byte_tokens_;
  const auto num_missing = std::count(bytes.begin(), bytes.end(), -1);
  if (num_missing > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.model: has byte_fallback, but lacks ", num_missing, " of the 256 byte pieces"));
  }
  vocabulary->user_defined_ = PrefixTrie(std::move(user_defined));
  vocabulary->special_ = PrefixTrie(std::move(special));
  return vocabulary;
}

TokenId SentencePieceVocabulary::FindAny(std::string_view piece) const {
  const TokenId id = Find(reserved_ids_, piece);
  return id >= 0 ? id : FindText(piece);
}

absl::Status SentencePieceVocabulary::AddPiece(TokenId id) {
  const Piece& piece = pieces_[id];
  const bool is_text = piece.type == Type::kNormal || piece.type == Type::kUserDefined || piece.type == Type::kUnused;
  if (!(is_text ? text_ids_ : reserved_ids_).emplace(piece.text, id).second) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.model: piece \"", piece.text, "\" is given twice"));
  }
  if (piece.type == Type::kByte) return AddByte(id);
  if (piece.type != Type::kUnknown) return absl::OkStatus();
  if (unk_ != -1) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.model: pieces ", unk_, " and ", id, " are both unknown"));
  }
  unk_ = id;
  return absl::OkStatus();
}

absl::Status SentencePieceVocabulary::AddByte(TokenId id) {
  if (byte_tokens_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.model: piece ", id, " is a byte without byte_fallback"));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (pieces_[id].text != absl::StrFormat("<0x%02X>", byte)) continue;
    byte_tokens_[byte] = id;
    bytes_[id] = static_cast<char>(byte);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.model: byte piece ", id, " is not <0x00> to <0xFF>"));
}

}  // namespace quire
