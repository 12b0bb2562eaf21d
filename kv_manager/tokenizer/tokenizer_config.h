#ifndef QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_CONFIG_H_
#define QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_CONFIG_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire {

// What tokenizer_config.json says about the special tokens.
struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;

  // An empty text is an empty config. InvalidArgument when it is not a JSON object or a value has the wrong type.
  static absl::StatusOr<TokenizerConfig> Parse(std::string_view json);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_CONFIG_H_
