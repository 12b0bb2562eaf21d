// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_vocabulary.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";

// Returns whether the number of a file is one of GgufVocabulary::Type.
bool IsType(double number) {
  constexpr auto kLast = static_cast<double>(GgufVocabulary::Type::kByte);
  return number >= 0 && number <= kLast && number == std::trunc(number);
}

absl::Status ReadId(const GgufFields& fields, const char* name, GgufVocabulary* vocabulary,
                    std::optional<int64_t>* id) {
  const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
  if (!fields.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(*id, fields.Int(key, 0, static_cast<int64_t>(vocabulary->tokens.size()) - 1));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufVocabulary> ReadGgufVocabulary(const GgufFields& fields) {
  GgufVocabulary vocabulary;
  QUIRE_ASSIGN_OR_RETURN(vocabulary.tokens, fields.Strings(kTokens));
  if (vocabulary.tokens.empty()) return fields.Bad(kTokens, "an array of strings");
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.tokens[i].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(kTokens, ", element ", i, ", is empty"));
    }
  }
  QUIRE_RETURN_IF_ERROR(ReadId(fields, "bos", &vocabulary, &vocabulary.bos));
  QUIRE_RETURN_IF_ERROR(ReadId(fields, "eos", &vocabulary, &vocabulary.eos));
  QUIRE_RETURN_IF_ERROR(ReadId(fields, "unknown", &vocabulary, &vocabulary.unknown));
  QUIRE_RETURN_IF_ERROR(ReadId(fields, "padding", &vocabulary, &vocabulary.padding));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<double> types, fields.Numbers(kTypes));
  vocabulary.types.assign(vocabulary.tokens.size(), GgufVocabulary::Type::kNormal);
  if (types.empty()) {
    for (const auto& id : {vocabulary.bos, vocabulary.eos}) {
      if (id) vocabulary.types[*id] = GgufVocabulary::Type::kControl;
    }
    return vocabulary;
  }
  if (types.size() != vocabulary.tokens.size()) {
    return fields.Bad(kTypes, absl::StrCat("an array of ", vocabulary.tokens.size(), " numbers, as ", kTokens));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (!IsType(types[i])) {
      return absl::InvalidArgumentError(absl::StrCat(kTypes, ", element ", i, ", is ", types[i], ", must be 0 to 6"));
    }
    vocabulary.types[i] = static_cast<GgufVocabulary::Type>(static_cast<int>(types[i]));
  }
  return vocabulary;
}

}  // namespace quire
