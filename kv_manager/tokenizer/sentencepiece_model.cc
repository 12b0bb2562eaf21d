// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/sentencepiece_model.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/proto_reader.h"
#include "kv_manager/tokenizer/vocabulary.h"

namespace quire {
namespace {

// Calls `read(reader)` for each field of a message.
template <typename Read>
absl::Status ForEachField(std::string_view bytes, const char* message, Read read) {
  ProtoReader reader(bytes, message);
  while (true) {
    QUIRE_ASSIGN_OR_RETURN(const bool has_field, reader.Next());
    if (!has_field) return absl::OkStatus();
    QUIRE_RETURN_IF_ERROR(read(reader));
  }
}

absl::Status ReadBool(const ProtoReader& reader, bool* value) {
  QUIRE_ASSIGN_OR_RETURN(const uint64_t varint, reader.Varint());
  *value = varint != 0;
  return absl::OkStatus();
}

absl::Status ReadString(const ProtoReader& reader, std::string* value) {
  QUIRE_ASSIGN_OR_RETURN(*value, reader.Bytes());
  return absl::OkStatus();
}

absl::StatusOr<SentencePieceModel::Piece> ParsePiece(std::string_view bytes, size_t id) {
  SentencePieceModel::Piece piece;
  QUIRE_RETURN_IF_ERROR(
      ForEachField(bytes, "tokenizer.model: SentencePiece", [&](const ProtoReader& reader) -> absl::Status {
        switch (reader.field()) {
          case 1:
            return ReadString(reader, &piece.text);
          case 2: {
            QUIRE_ASSIGN_OR_RETURN(piece.score, reader.Float());
            return absl::OkStatus();
          }
          case 3: {
            QUIRE_ASSIGN_OR_RETURN(const uint64_t type, reader.Varint());
            if (type < 1 || type > 6) {
              return absl::InvalidArgumentError(
                  absl::StrCat("tokenizer.model: piece ", id, " has type ", type, ", types are 1 to 6"));
            }
            piece.type = static_cast<SentencePieceModel::Type>(type);
            return absl::OkStatus();
          }
          default:
            return absl::OkStatus();
        }
      }));
  if (piece.text.empty()) return absl::InvalidArgumentError(absl::StrCat("tokenizer.model: piece ", id, " is empty"));
  if (!std::isfinite(piece.score)) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.model: piece ", id, " has score ", piece.score));
  }
  QUIRE_RETURN_IF_ERROR(CheckUtf8(piece.text, absl::StrCat("tokenizer.model: piece ", id)));
  return piece;
}

absl::Status ParseTrainerSpec(std::string_view bytes, SentencePieceModel* model) {
  return ForEachField(bytes, "tokenizer.model: TrainerSpec", [model](const ProtoReader& reader) -> absl::Status {
    switch (reader.field()) {
      case 3: {
        QUIRE_ASSIGN_OR_RETURN(const uint64_t type, reader.Varint());
        if (type != 1 && type != 2) {
          return absl::InvalidArgumentError(
              absl::StrCat("tokenizer.model: model_type is ", type, ", only 1 (unigram) and 2 (BPE) are supported"));
        }
        model->algorithm = static_cast<SentencePieceModel::Algorithm>(type);
        return absl::OkStatus();
      }
      case 24:
        return ReadBool(reader, &model->treat_whitespace_as_suffix);
      case 35:
        return ReadBool(reader, &model->byte_fallback);
      case 44:
        return ReadString(reader, &model->unk_surface);
      case 46:
        return ReadString(reader, &model->bos_piece);
      case 47:
        return ReadString(reader, &model->eos_piece);
      default:
        return absl::OkStatus();
    }
  });
}

absl::Status ParseNormalizerSpec(std::string_view bytes, SentencePieceModel* model) {
  return ForEachField(bytes, "tokenizer.model: NormalizerSpec", [model](const ProtoReader& reader) -> absl::Status {
    switch (reader.field()) {
      case 2:
        return ReadString(reader, &model->precompiled_charsmap);
      case 3:
        return ReadBool(reader, &model->add_dummy_prefix);
      case 4:
        return ReadBool(reader, &model->remove_extra_whitespaces);
      case 5:
        return ReadBool(reader, &model->escape_whitespaces);
      default:
        return absl::OkStatus();
    }
  });
}

absl::Status CheckNoDenormalizer(std::string_view bytes) {
  SentencePieceModel denormalizer;
  QUIRE_RETURN_IF_ERROR(ParseNormalizerSpec(bytes, &denormalizer));
  if (denormalizer.precompiled_charsmap.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("tokenizer.model: denormalizer_spec with rules is not supported");
}

}  // namespace

absl::StatusOr<SentencePieceModel> SentencePieceModel::Parse(std::string_view bytes) {
  SentencePieceModel model;
  QUIRE_RETURN_IF_ERROR(
      ForEachField(bytes, "tokenizer.model: ModelProto", [&](const ProtoReader& reader) -> absl::Status {
        if (reader.field() != 1 && reader.field() != 2 && reader.field() != 3 && reader.field() != 5) {
          return absl::OkStatus();
        }
        QUIRE_ASSIGN_OR_RETURN(const std::string_view payload, reader.Bytes());
        if (reader.field() == 2) return ParseTrainerSpec(payload, &model);
        if (reader.field() == 3) return ParseNormalizerSpec(payload, &model);
        if (reader.field() == 5) return CheckNoDenormalizer(payload);
        if (model.pieces.size() > kMaxTokenId) {
          return absl::InvalidArgumentError(
              absl::StrCat("tokenizer.model: has more than ", kMaxTokenId + 1, " pieces"));
        }
        QUIRE_ASSIGN_OR_RETURN(Piece piece, ParsePiece(payload, model.pieces.size()));
        model.pieces.push_back(std::move(piece));
        return absl::OkStatus();
      }));
  QUIRE_RETURN_IF_ERROR(CheckUtf8(model.unk_surface, "tokenizer.model: unk_surface"));
  return model;
}

}  // namespace quire
