// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_JSON_H_
#define QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_JSON_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/added_vocabulary.h"
#include "kv_manager/tokenizer/decoder.h"
#include "kv_manager/tokenizer/model.h"
#include "kv_manager/tokenizer/normalizer.h"
#include "kv_manager/tokenizer/post_processor.h"
#include "kv_manager/tokenizer/pre_tokenizer.h"
#include "kv_manager/tokenizer/tokenizer_config.h"

namespace quire {

// The parsed parts of a tokenizer.json. A prompt passes through them from top to bottom.
struct TokenizerJson {
  std::unique_ptr<Normalizer> normalizer;  // may be null
  AddedVocabulary added;
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<TokenModel> model;
  PostProcessor post_processor;
  Decoder decoder;

  // InvalidArgument, naming the JSON path, for anything that is malformed or not supported. "truncation" and "padding"
  // are not read, because the caller decides how long a prompt may be.
  //
  // tokenizer_config.json adds to the added tokens, as in transformers: its added_tokens_decoder replaces the flags of
  // tokens that the file has, and adds the others. Special tokens that it names and that are no added tokens become
  // some, if the vocabulary has them. `prefix` is as in LoadHfTokenizer.
  static absl::StatusOr<TokenizerJson> Parse(std::string_view text, const TokenizerConfig& config = {},
                                             SpacePrefix prefix = SpacePrefix::kAsInFile);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_JSON_H_
