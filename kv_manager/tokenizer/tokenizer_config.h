// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_CONFIG_H_
#define QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_CONFIG_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/added_vocabulary.h"

namespace quire {

// The files of a checkpoint that name special and added tokens. A string is empty when there is no such file.
struct TokenizerConfigFiles {
  std::string_view tokenizer_config_json = {};
  // Files of older checkpoints. As in Transformers, they count only if tokenizer_config.json has no
  // added_tokens_decoder. A token that special_tokens_map.json names then replaces that of tokenizer_config.json.
  std::string_view special_tokens_map_json = {};
  std::string_view added_tokens_json = {};
};

// Returns tokenizer_config.json with the tokens of special_tokens_map.json. InvalidArgument when a file is not a JSON
// object, or a token of special_tokens_map.json is none.
absl::StatusOr<nlohmann::json> MergeSpecialTokens(const TokenizerConfigFiles& files);

// Where a space comes in front of a text, or of a part of it between special tokens, before a model of SentencePiece
// cuts it into pieces.
enum class SpacePrefix {
  kAsInFile,   // As the file of the tokenizer says. In a tokenizer.model: in front of every part.
  kEveryPart,  // In front of every part that does not begin with a space.
  kFirstPart,  // Only in front of a text that begins neither with a space nor with a special token.
  kNone,
};

// The special and added tokens that these files name.
struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  // added_tokens_decoder, or else the tokens of added_tokens.json, by ascending id.
  std::vector<AddedToken> added_tokens;
  bool is_legacy = false;                   // They are from added_tokens.json, which has no flags.
  std::vector<std::string> special_tokens;  // Every name of a special token, additional_special_tokens included.

  // Returns where Transformers 5.24 writes a space. `is_llama` says whether the model is a LlamaForCausalLM: for some
  // other models it does not take the class that the file names. `has_json` says whether there is a tokenizer.json.
  SpacePrefix space_prefix(bool is_llama, bool has_json) const;

  bool is_llama_class = false;  // tokenizer_class is LlamaTokenizer or LlamaTokenizerFast.
  std::optional<bool> legacy;
  bool add_prefix_space = true;

  // InvalidArgument when a file is not a JSON object, a value has the wrong type, or a field demands what is not
  // supported.
  static absl::StatusOr<TokenizerConfig> Parse(const TokenizerConfigFiles& files);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_CONFIG_H_
