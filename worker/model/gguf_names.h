// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_NAMES_H_
#define QUIRE_WORKER_MODEL_GGUF_NAMES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quire {

// Returns the error of a model in a GGUF file with the path of the file, and with what the file has in place of what a
// Hugging Face folder has: a key of the metadata for a field of config.json, and its own name for a tensor. An example
// is "m.gguf: llama.embedding_length is 0, ..." for "config.json: hidden_size is 0, ...". `architecture` is the one
// that the file names.
absl::Status InGguf(absl::string_view path, absl::string_view architecture, const absl::Status& error);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_NAMES_H_
