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
  static absl::StatusOr<TokenizerJson> Parse(std::string_view text);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_JSON_H_
