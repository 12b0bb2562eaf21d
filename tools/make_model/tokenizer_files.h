// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TOOLS_MAKE_MODEL_TOKENIZER_FILES_H_
#define QUIRE_TOOLS_MAKE_MODEL_TOKENIZER_FILES_H_

#include <string>

namespace quire::make_model {

// A byte-level tokenizer without merges: ids 0 and 1 are <s> and </s>, ids 2 .. 257 the bytes 0 .. 255. Every id above
// decodes to a word of its own (" w258", " w259", ...) that no text encodes to, so that any id the model draws has
// text.
inline constexpr int kBosToken = 0;
inline constexpr int kEosToken = 1;
inline constexpr int kFirstByteToken = 2;
inline constexpr int kMinVocab = kFirstByteToken + 256;

// Whether the vocabulary has room for all bytes; without, a model has no tokenizer.
constexpr bool HasTokenizer(int vocab) {
  return vocab >= kMinVocab;
}

// Hugging Face tokenizer.json and tokenizer_config.json. REQUIRES: HasTokenizer(vocab).
std::string TokenizerJson(int vocab);
std::string TokenizerConfigJson(int context);

}  // namespace quire::make_model

#endif  // QUIRE_TOOLS_MAKE_MODEL_TOKENIZER_FILES_H_
