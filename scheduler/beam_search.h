// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_BEAM_SEARCH_H_
#define QUIRE_SCHEDULER_BEAM_SEARCH_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/beam_params.h"
#include "scheduler/beam_search_state.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"
#include "scheduler/token_tree.h"

namespace quire {

// The decisions of beam search: which beams continue with which token, which are finished, and when the search is over.
// They equal the decisions of Hugging Face generate; for num_groups > 1 they equal its group search up to transformers
// 4. The class holds generated tokens only and knows nothing of rows and blocks. Equal candidates give equal decisions:
// ties go to the better ranked parent, and then to the lower token id.
//
// Sums and scores are float32, as in Hugging Face. In double precision some near-ties would be decided differently.
//
// One step with width 2 and stop token 0, with sums in brackets. The live beams are "a" [-1] and "b" [-2]. The
// candidates of "a" are 0 (-0.1), c (-3) and d (-4); the candidates of "b" are c (-0.5), 0 (-1) and d (-3). The ranked
// candidates are a0 [-1.1], bc [-2.5], b0 [-3] and ac [-4]. a0 is finished, with score -1.1 / 2. b0 is not, because its
// rank is not below the width. bc and ac are the next live beams.
class BeamSearch {
 public:
  // The token that a new live beam took, and the earlier live beam that it continues.
  struct Extension {
    int parent;  // Index of that beam in what the last Advance returned.
    TokenId token;
    float logprob;  // As it was given, without the diversity penalty.

    bool operator==(const Extension&) const = default;
  };

  struct Hypothesis {
    std::vector<TokenId> tokens;  // The generated tokens, including the stop token.
    std::vector<float> logprobs;  // One per token, as they were given.
    float score;                  // Includes the diversity penalties.
    FinishReason reason;          // kLength, or kStopToken for a stop token and for a stop condition.
  };

  // REQUIRES: the fields of `params` are in their ranges, max_tokens >= 1, and `stop_token_ids` are distinct.
  // `stop_condition` may be null; it must outlive this.
  BeamSearch(const BeamParams& params, int max_tokens, std::vector<TokenId> stop_token_ids,
             const StopCondition* stop_condition);

  // Returns how many of the best candidates of each live beam Advance needs.
  int num_candidates() const;

  // Makes one step. candidates[i] belong to live beam i, the most likely tokens first, with their logprobs after
  // penalties and masks; a token with -inf is no candidate. In the first step the prompt is the one live beam. Returns
  // the live beams of the next step, group by group and the best first. There are at most `width` beams. There are
  // fewer when masks leave no more candidates, and none when the search is over. REQUIRES: !is_done() and one list per
  // live beam.
  std::vector<Extension> Advance(absl::Span<const std::vector<TokenLogprob>> candidates);

  bool is_done() const { return is_done_; }

  // The generated tokens on which all live beams and all finished hypotheses that may still be returned agree. They are
  // final, so they may be streamed. Tokens are only ever appended. When the search is done, these are the tokens that
  // the returned hypotheses have in common. Valid until the next Advance.
  const std::vector<TokenId>& agreed_tokens() const { return agreed_tokens_; }
  // One logprob per agreed token, as they were given.
  const std::vector<float>& agreed_logprobs() const { return agreed_logprobs_; }

  // Returns what the search has become, without BeamSearchState::sequences. REQUIRES: !is_done().
  BeamSearchState state() const;
  // Continues from this state of a search with the same parameters. REQUIRES: DecodeBeamSearchState has made it, and
  // Advance was not called.
  void Restore(const BeamSearchState& state);

  // The best hypotheses, the best first: num_return of them, or fewer when masks left no more. REQUIRES: is_done().
  std::vector<Hypothesis> Best() const;

 private:
  struct Beam {
    TokenTree::NodeId node;
    float sum;  // The sum of its logprobs, less its diversity penalties.
  };
  struct Finished {
    TokenTree::NodeId node;  // kDropped when the hypothesis cannot be returned but still has to be beaten by others.
    float score;
    FinishReason reason;
  };
  struct Group {
    std::vector<Beam> beams;         // Best first.
    std::vector<Finished> finished;  // Best first, at most one for each beam of the group.
    bool is_done = false;
  };
  struct Candidate {
    int parent;  // Index among the beams of the group.
    TokenId token;
    float logprob;
    float sum;
  };
  using CandidateLists = absl::Span<const std::vector<TokenLogprob>>;  // One list per beam of a group.
  using TokenCounts = absl::flat_hash_map<TokenId, int>;  // Per token, how many beams of earlier groups took it.

  static constexpr TokenTree::NodeId kDropped = -1;

  int group_width() const { return params_.width / params_.num_groups; }
  int num_ranks() const;  // Returns how many of the best candidates of a group count.

  // Replaces the group's beams by the next ones, adds their tokens to `taken`, and stores in `parents` which beam each
  // of them continues.
  void AdvanceGroup(CandidateLists lists, TokenCounts* taken, Group* group, std::vector<int>* parents);
  std::vector<Candidate> Rank(CandidateLists lists, const TokenCounts& taken, const Group& group) const;
  bool IsStopped(TokenTree::NodeId parent, TokenId token) const;
  bool IsOver(const Group& group, float best_candidate) const;
  float Score(float sum, int length) const;
  void AddFinished(TokenTree::NodeId node, float sum, FinishReason reason, Group* group);
  void ReleaseBeams(std::vector<Beam>* beams);
  void FinishSearch();
  void ExtendAgreed();

  const BeamParams params_;
  const int max_tokens_;
  const std::vector<TokenId> stop_token_ids_;
  const StopCondition* const stop_condition_;

  int num_generated_ = 0;  // Tokens that each live beam has generated.
  TokenTree tree_;         // Holds all live beams and all hypotheses that may be returned.
  std::vector<Group> groups_;
  bool is_done_ = false;
  std::vector<Finished> best_;  // The hypotheses that Best returns once the search is done.

  TokenTree::NodeId agreed_node_ = TokenTree::kRoot;
  std::vector<TokenId> agreed_tokens_;
  std::vector<float> agreed_logprobs_;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_BEAM_SEARCH_H_
