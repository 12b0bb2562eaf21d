// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_CONFIG_H_
#define QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_CONFIG_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/added_vocabulary.h"

namespace quire {

// This is what tokenizer_config.json says about the special and the added tokens.
struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::vector<AddedToken> added_tokens;     // added_tokens_decoder, by ascending id.
  std::vector<std::string> special_tokens;  // Every name of a special token, additional_special_tokens included.

  // An empty text is an empty config. InvalidArgument when it is not a JSON object or a value has the wrong type.
  static absl::StatusOr<TokenizerConfig> Parse(std::string_view json);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_CONFIG_H_
