// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_MODEL_H_
#define QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_MODEL_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

// The parts of a tokenizer.model (a serialised sentencepiece.ModelProto) that encoding and decoding need, with the
// protocol's defaults.
struct SentencePieceModel {
  enum class Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  enum class Algorithm { kUnigram = 1, kBpe = 2 };

  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };

  std::vector<Piece> pieces;  // Indexed by token id.

  Algorithm algorithm = Algorithm::kUnigram;
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  std::string unk_surface = " \xE2\x81\x87 ";  // The text that an unknown token is decoded to.
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";

  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::string precompiled_charsmap;

  // This reads the wire format itself, because the sentencepiece library cannot share a process with protobuf.
  // InvalidArgument names the message and the field that is broken. It is also returned for word and character models,
  // which are not supported.
  static absl::StatusOr<SentencePieceModel> Parse(std::string_view bytes);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_MODEL_H_
