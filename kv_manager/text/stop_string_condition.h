// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TEXT_STOP_STRING_CONDITION_H_
#define QUIRE_KV_MANAGER_TEXT_STOP_STRING_CONDITION_H_

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kv_manager/text/output_text.h"
#include "kv_manager/text/stop_string_matcher.h"
#include "kv_manager/tokenizer/detokenizer.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "scheduler/beam_params.h"

namespace quire {

// Ends a hypothesis whose text contains a stop string, at the token where OutputText would find it. A call decodes at
// most one token for each byte of the longest stop string, and a few before them: a match cannot be longer, because a
// token has at least one byte of text. Thread-safe.
class StopStringCondition : public StopCondition {
 public:
  // Uses the stop strings, min_tokens and skip_special_tokens of `options`. REQUIRES: there is a stop string.
  StopStringCondition(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<TokenId>& prompt,
                      const OutputOptions& options);

  // One token more than is decoded, which tells whether a hypothesis is decoded from its beginning.
  int num_tokens_needed() const override { return num_decoded_ + 1; }
  bool IsMet(absl::Span<const TokenId> last_tokens, int num_tokens) const override;

 private:
  // A decoder, and the tokens that it has to decode.
  StreamingDetokenizer Begin(absl::Span<const TokenId>* tokens) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const bool skip_special_tokens_;
  const int min_tokens_;
  const int num_decoded_;                   // Says how many tokens a call decodes at most.
  const StreamingDetokenizer from_prompt_;  // Copied for a hypothesis that is decoded from its beginning.
  const StopStringMatcher matcher_;         // Copied for each text.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TEXT_STOP_STRING_CONDITION_H_
