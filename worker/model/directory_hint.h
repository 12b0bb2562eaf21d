// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_DIRECTORY_HINT_H_
#define QUIRE_WORKER_MODEL_DIRECTORY_HINT_H_

#include <string>

namespace quire {

// Returns what to do about a path that cannot be loaded because a file is missing, as "; " and a sentence. It
// recognises the name of a model on a hub, GGUF files, PyTorch pickles, LoRA adapters and the original checkpoints of
// Meta and Mistral. Returns "" when it recognises nothing.
std::string DirectoryHint(const std::string& path);

// The same for a directory without tokenizer files that we read: it recognises the files of tiktoken.
std::string TokenizerHint(const std::string& directory);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_DIRECTORY_HINT_H_
