// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_SAMPLING_STATE_H_
#define QUIRE_WORKER_SAMPLING_STATE_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kernels/sampling.h"
#include "quire/v1/worker.pb.h"
#include "worker/row_guide.h"

namespace quire {

// The sampling parameters of a row, and what sampling must know about the row's tokens so far. The state after
// Start(all tokens) equals the state after Start(some tokens) and Append for each of the rest. The cost of a step does
// not depend on the length of the context.
class SamplingState {
 public:
  // REQUIRES: CheckSequenceStart accepted `start`.
  void Start(const v1::SequenceStart& start, int vocab_size);
  // The output of the row follows this guide, which knows the generated tokens of `start`.
  void SetGuide(RowGuide guide) { guide_ = std::move(guide); }
  // Returns null if the row has no guide.
  const RowGuide* guide() const { return guide_.has_value() ? &*guide_ : nullptr; }
  // Finds what the guide allows next. An error says why there can be no draw now, see RowGuide::FillMask. REQUIRES: the
  // row has a guide.
  const absl::Status& FillGuideMask() { return guide_status_ = guide_->FillMask(&guide_mask_); }
  void Append(TokenId token);
  // Sets which sample of its request the sequence is. A fork changes nothing else. Sample i draws like sample 0 of a
  // request with seed + i.
  void SetSampleIndex(uint32_t sample_index) { params_.seed = seed_ + sample_index; }

  // Returns the row for a draw, or for listing candidates, after `tokens`. These are all tokens of the sequence; if not
  // NeedsTokens(), their values are not used. The penalties count the tokens of Start and Append only. Bad words are
  // matched against generated tokens only, so that the end of the prompt masks nothing. If the masks would leave no
  // token, they are dropped, but not that of a guide. The arrays are valid until the next call on this object.
  // REQUIRES: the row has no guide, or FillGuideMask was called after the last token and guide_status() is OK.
  SamplingRow Draw(absl::Span<const TokenId> tokens);
  // What FillGuideMask has returned. OK if the row has no guide.
  const absl::Status& guide_status() const { return guide_status_; }
  // Returns the row that scores `token`, a token of the prompt.
  SamplingRow Score(TokenId token) const;

  // Returns whether the host must know all tokens before a draw, because it matches them against bad words or a guide.
  bool NeedsTokens() const { return !bad_words_.empty() || guide_.has_value(); }

  // The number of alternatives to report with a drawn token, or -1 for no logprobs at all.
  int num_top() const { return num_top_; }
  // The same for tokens of the prompt.
  int num_prompt_top() const { return num_prompt_top_; }
  // If this is above 0, the row draws no token but reports this number of candidates. The manager appends one of them.
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
  // Restricts the row's masks to the tokens that the guide allows, too.
  void ApplyGuide(SamplingRow* row);

  uint64_t seed_ = 0;     // The seed of the request.
  SamplingRow params_{};  // The constant part of every draw; its arrays are set by Draw.
  int vocab_size_ = 0;
  int prompt_length_ = 0;
  int min_tokens_ = 0;
  int num_top_ = -1;
  int num_prompt_top_ = -1;
  std::vector<TokenCount> counts_;  // Kept only when a penalty is set.
  absl::flat_hash_map<TokenId, int> count_index_;
  std::vector<TokenBias> biases_;
  std::vector<TokenId> allowed_;  // There are no duplicates.
  std::vector<TokenId> min_tokens_masked_;
  std::vector<BadWord> bad_words_;   // Bad words of at least two tokens.
  std::vector<TokenId> bad_tokens_;  // Bad words of one token.
  std::vector<TokenId> masked_;
  std::optional<RowGuide> guide_;
  std::vector<uint32_t> guide_mask_;
  GuidedTokens guided_;
  absl::Status guide_status_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_SAMPLING_STATE_H_
