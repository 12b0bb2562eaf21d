// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_TEXT_PIECE_H_
#define QUIRE_KV_MANAGER_TOKENIZER_TEXT_PIECE_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "kv_manager/tokenizer/vocabulary.h"

namespace quire {

// A part of the prompt on its way to the model.
struct TextPiece {
  std::string text;
  // Says how many leading bytes of `text` come from the first character of the prompt or were put in front of it, and
  // whether the piece was cut there. The Metaspace pre-tokenizer with prepend_scheme "first" needs this.
  size_t num_origin_bytes = 0;
  bool starts_at_origin = false;
  // The longest text that normalisation may produce. Real rules make a text at most 20 times longer (U+FDFA).
  size_t max_bytes = 0;
  // The token that the piece is, when it is one of the added tokens. Such a piece is never split.
  TokenId token = kNoToken;

  // Puts `prefix` in front of the text. It counts as coming from the beginning of the text.
  void Prepend(std::string_view prefix) {
    text = std::string(prefix).append(text);
    if (num_origin_bytes > 0) num_origin_bytes += prefix.size();
  }

  // Returns the bytes [begin, end) as a separate piece.
  TextPiece Slice(size_t begin, size_t end) const {
    TextPiece slice;
    slice.text = text.substr(begin, end - begin);
    slice.starts_at_origin = begin < num_origin_bytes;
    slice.num_origin_bytes = slice.starts_at_origin ? std::min(num_origin_bytes, end) - begin : 0;
    slice.max_bytes = max_bytes;
    return slice;
  }
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_TEXT_PIECE_H_
