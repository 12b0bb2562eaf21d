// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/tokenizer.h"

#include "base/status.h"
#include "kv_manager/tokenizer/hf_tokenizer.h"
#include "kv_manager/tokenizer/sentencepiece_tokenizer.h"
#include "kv_manager/tokenizer/tokenizer_config.h"

namespace quire {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const TokenizerFiles& files) {
  QUIRE_ASSIGN_OR_RETURN(const TokenizerConfig config,
                         TokenizerConfig::Parse({.tokenizer_config_json = files.tokenizer_config_json,
                                                 .special_tokens_map_json = files.special_tokens_map_json,
                                                 .added_tokens_json = files.added_tokens_json}));
  const bool has_json = !files.tokenizer_json.empty();
  const SpacePrefix prefix = config.space_prefix(files.architecture == "LlamaForCausalLM", has_json);
  if (has_json) return LoadHfTokenizer(files.tokenizer_json, config, prefix);
  if (!files.tokenizer_model.empty()) return LoadSentencePieceTokenizer(files.tokenizer_model, config, prefix);
  return absl::InvalidArgumentError("the model has neither a tokenizer.json nor a tokenizer.model");
}

std::string Tokenizer::Decode(absl::Span<const TokenId> tokens, bool skip_special_tokens, size_t max_bytes) const {
  const std::unique_ptr<DecodeStream> stream = NewDecodeStream(skip_special_tokens);
  std::string text;
  for (const TokenId token : tokens) {
    stream->Push(token, &text);
    if (text.size() > max_bytes) return text;
  }
  stream->Finish(&text);
  return text;
}

}  // namespace quire
