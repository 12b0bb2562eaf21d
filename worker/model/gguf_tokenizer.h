// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_TOKENIZER_H_
#define QUIRE_WORKER_MODEL_GGUF_TOKENIZER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/gguf.h"
#include "worker/model/tokenizer_file.h"

namespace quire {

// Makes the files of a tokenizer from the metadata of a GGUF file (tokenizer.*):
//   - tokenizer.json for the tokenizer "gpt2": byte pair encoding of bytes, with the regular expression that
//     tokenizer.ggml.pre names,
//   - tokenizer.model for the tokenizer "llama": a model of SentencePiece with pieces, scores and types,
//   - tokenizer_config.json with the special tokens, and with "made_from": "gguf",
//   - chat_template.jinja, if the file has a template. Templates with names are in tokenizer_config.json.
// The result is empty when the file has no tokenizer. Another tokenizer, and another regular expression, is refused
// with its name.
absl::StatusOr<std::vector<TokenizerFile>> GgufTokenizerFiles(const GgufContents& contents);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_TOKENIZER_H_
