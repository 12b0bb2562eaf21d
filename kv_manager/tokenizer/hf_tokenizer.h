// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_HF_TOKENIZER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_HF_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "kv_manager/tokenizer/tokenizer_config.h"

namespace quire {

// The tokenizer of a tokenizer.json, equal to the `tokenizers` library. With another `prefix` than kAsInFile it is
// equal to Transformers' LlamaTokenizer, which takes from the file only the vocabulary, the merges, the added tokens
// and the post-processor.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadHfTokenizer(std::string_view tokenizer_json,
                                                           const TokenizerConfig& config, SpacePrefix prefix);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_HF_TOKENIZER_H_
