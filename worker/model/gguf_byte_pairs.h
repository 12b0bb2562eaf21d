// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_BYTE_PAIRS_H_
#define QUIRE_WORKER_MODEL_GGUF_BYTE_PAIRS_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/model/gguf_fields.h"
#include "worker/model/gguf_vocabulary.h"

namespace quire {

// Returns whether a prompt begins with BOS when the file does not say so.
bool AddsBosByDefault(const std::string& pre_tokenizer);

// Writes tokenizer.json for a tokenizer "gpt2". Control tokens are special added tokens, user-defined tokens are added
// tokens, and unused tokens are left out. Prompts begin with BOS and end with EOS if `adds_bos` and `adds_eos` are set.
absl::StatusOr<std::string> BytePairTokenizerJson(const GgufFields& fields, const GgufVocabulary& vocabulary,
                                                  bool adds_bos, bool adds_eos);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_BYTE_PAIRS_H_
