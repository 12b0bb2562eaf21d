// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_TOKENIZER_FILE_H_
#define QUIRE_WORKER_MODEL_TOKENIZER_FILE_H_

#include <string>

namespace quire {

// A file of the model directory for the manager. The worker checks only that the .json files of the tokenizer are JSON.
// The manager uses the files, and refuses a worker whose tokenizer it cannot use. A GGUF file has none of them; there,
// they are made from its metadata.
struct TokenizerFile {
  // tokenizer.json, tokenizer.model, tokenizer_config.json, chat_template.jinja, chat_template.json or
  // generation_config.json.
  std::string name;
  std::string contents;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_TOKENIZER_FILE_H_
