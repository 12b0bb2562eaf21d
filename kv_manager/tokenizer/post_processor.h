// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_POST_PROCESSOR_H_
#define QUIRE_KV_MANAGER_TOKENIZER_POST_PROCESSOR_H_

#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kv_manager/tokenizer/json_value.h"

namespace quire {

// The "post_processor" of a tokenizer.json for a single prompt: it adds the special tokens around the prompt.
struct PostProcessor {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;

  // InvalidArgument, naming the JSON path, for an unknown type, for an id outside of 0 .. kMaxTokenId, and for a
  // template that does not use the prompt exactly once.
  static absl::StatusOr<PostProcessor> Parse(const JsonValue& json);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_POST_PROCESSOR_H_
