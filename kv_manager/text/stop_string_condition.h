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

// Ends a hypothesis whose text contains a stop string, where OutputText would find it. A call decodes no more tokens
// than the longest stop string has bytes and a few before them: as long as tokens are at least a byte of text, that is
// all that a match can consist of. Thread-safe.
class StopStringCondition : public StopCondition {
 public:
  // Of `options` the stop strings, min_tokens and skip_special_tokens count. REQUIRES: there is a stop string.
  StopStringCondition(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<TokenId>& prompt,
                      const OutputOptions& options);

  // One more than is decoded tells a hypothesis that is decoded as a whole.
  int num_tokens_needed() const override { return num_decoded_ + 1; }
  bool IsMet(absl::Span<const TokenId> last_tokens, int num_tokens) const override;

 private:
  // A decoder for what follows, and the tokens that are left for it.
  StreamingDetokenizer Begin(absl::Span<const TokenId>* tokens) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const bool skip_special_tokens_;
  const int min_tokens_;
  const int num_decoded_;                   // Tokens at most.
  const StreamingDetokenizer from_prompt_;  // Copied for a hypothesis that is decoded as a whole.
  const StopStringMatcher matcher_;         // Copied for each text.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TEXT_STOP_STRING_CONDITION_H_
