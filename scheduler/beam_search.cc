// SPDX-License-Identifier: Apache-2.0

#include "scheduler/beam_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "base/check.h"

namespace quire {

BeamSearch::BeamSearch(const BeamParams& params, int max_tokens, std::vector<TokenId> stop_token_ids,
                       const StopCondition* stop_condition)
    : params_(params),
      max_tokens_(max_tokens),
      stop_token_ids_(std::move(stop_token_ids)),
      stop_condition_(stop_condition) {
  QUIRE_CHECK_GE(params.width, 1);
  QUIRE_CHECK(params.num_return >= 1 && params.num_return <= params.width) << params.num_return;
  QUIRE_CHECK(params.num_groups >= 1 && params.width % params.num_groups == 0) << params.num_groups;
  QUIRE_CHECK_GE(max_tokens, 1);
  groups_.resize(params.num_groups);
  for (Group& group : groups_) {
    group.beams = {{TokenTree::kRoot, 0}};
    tree_.Hold(TokenTree::kRoot);
  }
}

int BeamSearch::num_ranks() const {
  // The candidates of one beam may include all stop tokens. Beyond them, one must
  // remain for each beam of the group.
  return std::max(2, 1 + static_cast<int>(stop_token_ids_.size())) * group_width();
}

int BeamSearch::num_candidates() const {
  // The best candidates of the group are among the best candidates of each beam. A beam of another group can push at
  // most one token down the list.
  const int num_penalized = params_.width - group_width();
  // Without a stop condition, ranks matter only until the group has enough live beams. In the worst case all of them
  // continue one beam and come after all of its stop tokens.
  const int num_stop_tokens = static_cast<int>(stop_token_ids_.size());
  return num_penalized + (stop_condition_ == nullptr ? group_width() + num_stop_tokens : num_ranks());
}

std::vector<BeamSearch::Extension> BeamSearch::Advance(absl::Span<const std::vector<TokenLogprob>> candidates) {
  QUIRE_CHECK(!is_done_);
  const bool is_first = num_generated_++ == 0;
  std::vector<Extension> extensions;
  TokenCounts taken;
  size_t first_beam = 0;  // Index of the first beam of the group among all live beams.
  for (Group& group : groups_) {
    const size_t num_beams = group.beams.size();
    QUIRE_CHECK_LE(first_beam + num_beams, candidates.size());
    std::vector<int> parents;
    AdvanceGroup(candidates.subspan(first_beam, num_beams), &taken, &group, &parents);
    for (size_t i = 0; i < group.beams.size(); ++i) {
      const TokenLogprob& last = tree_.last(group.beams[i].node);
      extensions.push_back({static_cast<int>(first_beam) + parents[i], last.token, last.logprob});
    }
    // In the first step all groups continue the one prompt.
    if (!is_first) first_beam += num_beams;
  }
  QUIRE_CHECK_EQ(is_first ? 1 : first_beam, candidates.size());
  tree_.EndStep();
  is_done_ = extensions.empty();
  if (is_done_) FinishSearch();
  ExtendAgreed();
  return extensions;
}

void BeamSearch::AdvanceGroup(CandidateLists lists, TokenCounts* taken, Group* group, std::vector<int>* parents) {
  if (group->is_done) return;
  const std::vector<Candidate> ranked = Rank(lists, *taken, *group);
  std::vector<Beam> old_beams = std::exchange(group->beams, {});
  for (int rank = 0; rank < static_cast<int>(ranked.size()); ++rank) {
    if (static_cast<int>(group->beams.size()) == group_width()) break;
    const Candidate& candidate = ranked[rank];
    const TokenTree::NodeId parent = old_beams[candidate.parent].node;
    const bool is_stopped = IsStopped(parent, candidate.token);
    if (is_stopped && rank >= group_width()) continue;
    const TokenTree::NodeId node = tree_.Extend(parent, {candidate.token, candidate.logprob});
    if (is_stopped) {
      AddFinished(node, candidate.sum, FinishReason::kStopToken, group);
    } else {
      group->beams.push_back({node, candidate.sum});
      parents->push_back(candidate.parent);
      ++(*taken)[candidate.token];
    }
  }
  ReleaseBeams(&old_beams);

  const bool is_over = ranked.empty() || IsOver(*group, ranked.front().sum);
  const bool is_last = num_generated_ == max_tokens_;
  // Hugging Face drops the live beams of a group that is over. Without groups, however, they still compete at the last
  // token, which makes a difference with kWhenFull.
  if (is_last && !(is_over && params_.num_groups > 1)) {
    for (const Beam& beam : group->beams) {
      tree_.Hold(beam.node);
      AddFinished(beam.node, beam.sum, FinishReason::kLength, group);
    }
  }
  group->is_done = is_over || is_last;
  if (group->is_done) ReleaseBeams(&group->beams);
}

std::vector<BeamSearch::Candidate> BeamSearch::Rank(CandidateLists lists, const TokenCounts& taken,
                                                    const Group& group) const {
  std::vector<Candidate> ranked;
  for (int parent = 0; parent < static_cast<int>(lists.size()); ++parent) {
    for (const TokenLogprob& candidate : lists[parent]) {
      if (!(candidate.logprob > -std::numeric_limits<float>::infinity())) continue;
      const auto count = taken.find(candidate.token);
      const float penalty = count == taken.end() ? 0.0f : params_.diversity_penalty * static_cast<float>(count->second);
      const float sum = candidate.logprob - penalty + group.beams[parent].sum;
      ranked.push_back({parent, candidate.token, candidate.logprob, sum});
    }
  }
  const auto is_better = [](const Candidate& a, const Candidate& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
  };
  const size_t num_kept = std::min<size_t>(ranked.size(), num_ranks());
  std::partial_sort(ranked.begin(), ranked.begin() + num_kept, ranked.end(), is_better);
  ranked.resize(num_kept);
  return ranked;
}

bool BeamSearch::IsStopped(TokenTree::NodeId parent, TokenId token) const {
  if (std::find(stop_token_ids_.begin(), stop_token_ids_.end(), token) != stop_token_ids_.end()) return true;
  if (stop_condition_ == nullptr) return false;
  std::vector<TokenId> last_tokens;
  const int num_before = stop_condition_->num_tokens_needed() - 1;
  for (const TokenLogprob& before : tree_.Tokens(parent, std::max(tree_.length(parent) - num_before, 0)))
    last_tokens.push_back(before.token);
  last_tokens.push_back(token);
  return stop_condition_->IsMet(last_tokens, tree_.length(parent) + 1);
}

bool BeamSearch::IsOver(const Group& group, float best_candidate) const {
  if (group.beams.empty()) return true;
  if (static_cast<int>(group.finished.size()) < group_width()) return false;
  if (params_.early_stopping == EarlyStopping::kWhenFull || params_.width == 1) return true;
  const float best_sum = params_.num_groups > 1 ? best_candidate : group.beams.front().sum;
  const bool grows = params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
  return Score(best_sum, grows ? max_tokens_ : num_generated_) <= group.finished.back().score;
}

float BeamSearch::Score(float sum, int length) const {
  return sum / static_cast<float>(std::pow(static_cast<double>(length), static_cast<double>(params_.length_penalty)));
}

void BeamSearch::AddFinished(TokenTree::NodeId node, float sum, FinishReason reason, Group* group) {
  const Finished hypothesis = {node, Score(sum, tree_.length(node)), reason};
  std::vector<Finished>& finished = group->finished;
  const auto is_better = [](const Finished& a, const Finished& b) { return a.score > b.score; };
  finished.insert(std::upper_bound(finished.begin(), finished.end(), hypothesis, is_better), hypothesis);
  for (size_t i = params_.num_return; i < finished.size(); ++i) {
    if (finished[i].node == kDropped) continue;
    tree_.Release(finished[i].node);
    finished[i].node = kDropped;
  }
  if (static_cast<int>(finished.size()) > group_width()) {
    if (finished.back().node != kDropped) tree_.Release(finished.back().node);
    finished.pop_back();
  }
}

void BeamSearch::ReleaseBeams(std::vector<Beam>* beams) {
  for (const Beam& beam : *beams) tree_.Release(beam.node);
  beams->clear();
}

void BeamSearch::FinishSearch() {
  for (const Group& group : groups_) {
    std::copy_if(group.finished.begin(), group.finished.end(), std::back_inserter(best_),
                 [](const Finished& finished) { return finished.node != kDropped; });
  }
  std::stable_sort(best_.begin(), best_.end(), [](const Finished& a, const Finished& b) { return a.score > b.score; });
  while (static_cast<int>(best_.size()) > params_.num_return) {
    tree_.Release(best_.back().node);
    best_.pop_back();
  }
}

void BeamSearch::ExtendAgreed() {
  const auto live = std::find_if(groups_.begin(), groups_.end(), [](const Group& group) { return !group.is_done; });
  if (live == groups_.end() && best_.empty()) return;
  const TokenTree::NodeId held = live == groups_.end() ? best_.front().node : live->beams.front().node;
  agreed_node_ = tree_.CommonBeginning(held, agreed_node_);
  for (const TokenLogprob& agreed : tree_.Tokens(agreed_node_, static_cast<int>(agreed_tokens_.size()))) {
    agreed_tokens_.push_back(agreed.token);
    agreed_logprobs_.push_back(agreed.logprob);
  }
}

BeamSearchState BeamSearch::state() const {
  QUIRE_CHECK(!is_done_);
  BeamSearchState state;
  std::vector<int> places;
  for (const TokenTree::SavedNode& node : tree_.Save(&places)) state.nodes.push_back({node.parent, node.token});
  state.num_generated = num_generated_;
  state.agreed_node = places[agreed_node_];
  for (const Group& group : groups_) {
    BeamSearchState::Group& saved = state.groups.emplace_back();
    saved.is_done = group.is_done;
    for (const Beam& beam : group.beams) saved.beams.push_back({places[beam.node], beam.sum});
    for (const Finished& finished : group.finished) {
      const int node = finished.node == kDropped ? BeamSearchState::kDropped : places[finished.node];
      saved.finished.push_back({node, finished.score, finished.reason});
    }
  }
  return state;
}

void BeamSearch::Restore(const BeamSearchState& state) {
  QUIRE_CHECK_EQ(num_generated_, 0);
  QUIRE_CHECK_EQ(state.groups.size(), groups_.size());
  num_generated_ = state.num_generated;
  std::vector<TokenTree::SavedNode> nodes;
  for (const BeamSearchState::Node& node : state.nodes) nodes.push_back({node.parent, node.token});
  tree_ = TokenTree::Load(nodes);
  const auto hold = [this](int place) {
    tree_.Hold(place + 1);
    return TokenTree::NodeId{place + 1};
  };
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group group{.beams = {}, .finished = {}, .is_done = state.groups[i].is_done};
    for (const BeamSearchState::Beam& beam : state.groups[i].beams) group.beams.push_back({hold(beam.node), beam.sum});
    for (const BeamSearchState::Finished& finished : state.groups[i].finished) {
      const TokenTree::NodeId node = finished.node == BeamSearchState::kDropped ? kDropped : hold(finished.node);
      group.finished.push_back({node, finished.score, finished.reason});
    }
    groups_[i] = std::move(group);
  }
  agreed_node_ = state.agreed_node + 1;
  for (const TokenLogprob& agreed : tree_.Tokens(agreed_node_, 0)) {
    agreed_tokens_.push_back(agreed.token);
    agreed_logprobs_.push_back(agreed.logprob);
  }
}

std::vector<BeamSearch::Hypothesis> BeamSearch::Best() const {
  QUIRE_CHECK(is_done_);
  std::vector<Hypothesis> best;
  for (const Finished& finished : best_) {
    Hypothesis hypothesis = {{}, {}, finished.score, finished.reason};
    for (const TokenLogprob& token : tree_.Tokens(finished.node, 0)) {
      hypothesis.tokens.push_back(token.token);
      hypothesis.logprobs.push_back(token.logprob);
    }
    best.push_back(std::move(hypothesis));
  }
  return best;
}

}  // namespace quire
