// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_NORMALIZER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_NORMALIZER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/json_value.h"
#include "kv_manager/tokenizer/text_piece.h"

namespace quire {

// The "normalizer" of a tokenizer.json. It rewrites a piece of text. Thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // InvalidArgument, naming the JSON path, for an unknown type or a bad value.
  static absl::StatusOr<std::unique_ptr<Normalizer>> Parse(const JsonValue& json);

  // Rewrites `*piece`, which is valid UTF-8. InvalidArgument when the matching of a pattern gives up or the text grows
  // beyond max_bytes. In that case the text is unspecified.
  virtual absl::Status Normalize(TextPiece* piece) const = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_NORMALIZER_H_
