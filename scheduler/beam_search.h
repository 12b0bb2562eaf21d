#ifndef QUIRE_SCHEDULER_BEAM_SEARCH_H_
#define QUIRE_SCHEDULER_BEAM_SEARCH_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/beam_params.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"
#include "scheduler/token_tree.h"

namespace quire {

// The decisions of beam search, those of Hugging Face generate (the group search up to transformers 4 for
// num_groups > 1): which beams go on with which token, which are finished, and when it is over. It holds generated
// tokens only and knows nothing of rows and blocks. Equal candidates give equal decisions: ties go to the better ranked
// parent, then to the lower token id.
//
// Sums and scores are float32, because those of Hugging Face are: in double precision near-ties would fall differently.
//
// One step at width 2, with stop token 0 and sums in brackets. Live: "a" [-1], "b" [-2]; the candidates of "a" are
// 0 (-0.1), c (-3), d (-4), those of "b" are c (-0.5), 0 (-1), d (-3). Ranked: a0 [-1.1], bc [-2.5], b0 [-3], ac [-4].
// a0 is finished, with score -1.1 / 2. b0 is not: its rank is not below the width. bc and ac live on.
class BeamSearch {
 public:
  // The token a new live beam took, and which of the live beams before it goes on from.
  struct Extension {
    int parent;  // In the order in which the last Advance returned them.
    TokenId token;
    float logprob;  // As given: without the diversity penalty.

    bool operator==(const Extension&) const = default;
  };

  struct Hypothesis {
    std::vector<TokenId> tokens;  // Generated ones, the stop token included.
    std::vector<float> logprobs;  // One per token, as given.
    float score;                  // Diversity penalties included.
    FinishReason reason;          // kStopToken, also when the stop condition is met; or kLength.
  };

  // REQUIRES: `params` in their ranges, max_tokens >= 1, distinct `stop_token_ids`. `stop_condition` may be null and
  // must outlive this.
  BeamSearch(const BeamParams& params, int max_tokens, std::vector<TokenId> stop_token_ids,
             const StopCondition* stop_condition);

  // How many of each live beam's best candidates decide the next step.
  int num_candidates() const;

  // One step: candidates[i] are those of live beam i, the most likely tokens first, with the logprobs that penalties
  // and masks left; -inf is no candidate. In the first step the one live beam is the prompt. Returns the live beams of
  // the next step, group by group and best first: at most width, fewer when masks leave no more, none when the search
  // is over. REQUIRES: !is_done() and one list per live beam.
  std::vector<Extension> Advance(absl::Span<const std::vector<TokenLogprob>> candidates);

  bool is_done() const { return is_done_; }

  // Generated tokens on which all live beams and all finished hypotheses that may still be returned agree: they are
  // final and may be streamed. Only ever appended to; when done, what the returned hypotheses have in common. Valid
  // until the next Advance.
  const std::vector<TokenId>& agreed_tokens() const { return agreed_tokens_; }
  const std::vector<float>& agreed_logprobs() const { return agreed_logprobs_; }  // One per agreed token, as given.

  // The best hypotheses: num_return of them, best first; fewer when masks left no more. REQUIRES: is_done().
  std::vector<Hypothesis> Best() const;

 private:
  struct Beam {
    TokenTree::NodeId node;
    float sum;  // Of its logprobs, less its diversity penalties.
  };
  struct Finished {
    TokenTree::NodeId node;  // kDropped when the hypothesis only matters as one that others have to beat.
    float score;
    FinishReason reason;
  };
  struct Group {
    std::vector<Beam> beams;         // Best first.
    std::vector<Finished> finished;  // Best first; at most the group's width.
    bool is_done = false;
  };
  struct Candidate {
    int parent;  // Among the beams of the group.
    TokenId token;
    float logprob;
    float sum;
  };
  using CandidateLists = absl::Span<const std::vector<TokenLogprob>>;  // One per beam of a group.
  using TokenCounts = absl::flat_hash_map<TokenId, int>;               // How many beams of earlier groups took a token.

  static constexpr TokenTree::NodeId kDropped = -1;

  int group_width() const { return params_.width / params_.num_groups; }
  int num_ranks() const;  // Of a group's candidates, those that count.

  // Puts the group's next beams in place, adds their tokens to `taken` and names the beam that each goes on from.
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

  int num_generated_ = 0;  // By each live beam.
  TokenTree tree_;         // Of all live beams and all hypotheses that may be returned.
  std::vector<Group> groups_;
  bool is_done_ = false;
  std::vector<Finished> best_;  // When done: what Best returns.

  TokenTree::NodeId agreed_node_ = TokenTree::kRoot;
  std::vector<TokenId> agreed_tokens_;
  std::vector<float> agreed_logprobs_;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_BEAM_SEARCH_H_
