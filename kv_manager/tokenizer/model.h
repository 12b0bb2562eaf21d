// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_MODEL_H_
#define QUIRE_KV_MANAGER_TOKENIZER_MODEL_H_

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kv_manager/tokenizer/vocabulary.h"

namespace quire {

// The last stage of encoding: it turns one word, as cut by the pre-tokenizer, into tokens. Thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the tokens of `word` (valid UTF-8). InvalidArgument when a character has no token and there is no unknown
  // token for it. In that case `tokens` is unspecified.
  virtual absl::Status Encode(std::string_view word, std::vector<TokenId>* tokens) const = 0;

  virtual const Vocabulary& vocabulary() const = 0;
  // The token of unknown characters, or kNoToken when there is none.
  virtual TokenId unk() const = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_MODEL_H_
