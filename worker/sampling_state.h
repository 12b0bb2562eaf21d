#ifndef QUIRE_WORKER_SAMPLING_STATE_H_
#define QUIRE_WORKER_SAMPLING_STATE_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kernels/sampling.h"
#include "quire/v1/worker.pb.h"

namespace quire {

// How a row's tokens are drawn, and what that needs to know of the tokens so far. A fold: the state after Start(all
// tokens) is that after Start(some) and Append(each of the rest). A step costs what changed, not the context's length.
class SamplingState {
 public:
  // REQUIRES: CheckSequenceStart accepted `start`.
  void Start(const v1::SequenceStart& start, int vocab_size);
  void Append(TokenId token);
  // Which sample of its request the sequence is: all that a fork changes. Sample i draws as sample 0 of a request with
  // seed + i would.
  void SetSampleIndex(uint32_t sample_index) { params_.seed = seed_ + sample_index; }

  // The row for the draw, or for the candidates, after `tokens` (all of the sequence's, known as far as NeedsTokens).
  // Bad words are sought in generated tokens only, so that nothing is masked because of how the prompt ends. Masks that
  // would leave no token at all are dropped. The arrays are valid until the next call of this object.
  SamplingRow Draw(absl::Span<const TokenId> tokens);
  // The row that scores `token`, a token of the prompt.
  SamplingRow Score(TokenId token) const;

  // Whether a draw depends on what the tokens before it are, and not on their number alone.
  bool NeedsTokens() const { return HasPenalties() || !bad_words_.empty(); }

  int num_top() const { return num_top_; }                // Of drawn tokens; -1: no logprobs.
  int num_prompt_top() const { return num_prompt_top_; }  // The same for tokens of the prompt.
  // Above 0 the row draws nothing and reports this many candidates, for the manager to append one.
  int num_candidates() const { return params_.num_candidates; }

 private:
  struct BadWord {
    std::vector<TokenId> prefix;
    TokenId last;
  };

  bool HasPenalties() const;
  void Count(TokenId token, bool generated);
  void StartBadWords(const v1::RowSampling& params);
  // Fills masked_ for the next draw.
  void CollectMasked(absl::Span<const TokenId> generated);

  uint64_t seed_ = 0;     // Of the request.
  SamplingRow params_{};  // The constant part of every draw; its arrays are set by Draw.
  int prompt_length_ = 0;
  int min_tokens_ = 0;
  int num_top_ = -1;
  int num_prompt_top_ = -1;
  std::vector<TokenCount> counts_;  // Kept only when a penalty is set.
  absl::flat_hash_map<TokenId, int> count_index_;
  std::vector<TokenBias> biases_;
  std::vector<TokenId> allowed_;  // Each once.
  std::vector<TokenId> min_tokens_masked_;
  std::vector<BadWord> bad_words_;   // Of two tokens and more.
  std::vector<TokenId> bad_tokens_;  // Bad words of one token.
  std::vector<TokenId> masked_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_SAMPLING_STATE_H_
