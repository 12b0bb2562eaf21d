// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_VOCABULARY_H_
#define QUIRE_WORKER_MODEL_GGUF_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/gguf_fields.h"

namespace quire {

// The tokens of a GGUF file. The views point into the file.
struct GgufVocabulary {
  // The numbers in the file, the same as in SentencePiece.
  enum class Type { kUndefined = 0, kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

  std::vector<std::string_view> tokens;  // The index is the id. Valid UTF-8 and not empty.
  std::vector<Type> types;               // [tokens.size()]
  std::optional<int64_t> bos;            // Ids of tokens.
  std::optional<int64_t> eos;
  std::optional<int64_t> unknown;
  std::optional<int64_t> padding;
};

// Reads tokenizer.ggml.tokens, the types and the ids. Without types, all tokens are normal ones, except the special
// tokens that the metadata names.
absl::StatusOr<GgufVocabulary> ReadGgufVocabulary(const GgufFields& fields);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_VOCABULARY_H_
