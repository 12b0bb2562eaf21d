// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/reference_beam_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace quire {
namespace {

struct Beam {
  std::vector<TokenId> tokens;
  uint64_t prefix;
  float sum;
};

struct Group {
  std::vector<Beam> beams;
  std::vector<SoloSample> finished;  // Best first.
  bool is_done = false;
};

class Search {
 public:
  Search(const ShadowModel& model, absl::Span<const ModelChange> changes, const BeamParams& params, int max_tokens,
         const std::vector<TokenId>& stops)
      : model_(model),
        changes_(changes),
        params_(params),
        max_tokens_(max_tokens),
        stops_(stops),
        width_(params.width / params.num_groups) {}

  // Adds the `step`th token to each beam of the group. `taken` counts the tokens that beams of earlier groups took.
  void Advance(int step, std::map<TokenId, int>* taken, Group* group) const {
    if (group->is_done) return;
    std::vector<Candidate> ranked = Rank(*taken, *group);
    const float best_sum = ranked.empty() ? 0 : ranked.front().beam.sum;
    group->beams.clear();
    for (size_t rank = 0; rank < ranked.size() && static_cast<int>(group->beams.size()) < width_; ++rank) {
      Beam& beam = ranked[rank].beam;
      const TokenId token = beam.tokens.back();
      if (std::find(stops_.begin(), stops_.end(), token) == stops_.end()) {
        ++(*taken)[token];
        group->beams.push_back(std::move(beam));
      } else if (static_cast<int>(rank) < width_) {
        Finish(beam, FinishReason::kStopToken, group);
      }
    }
    const bool is_over = group->beams.empty() || IsOver(step, best_sum, *group);
    const bool is_last = step == max_tokens_;
    if (is_last && (!is_over || params_.num_groups == 1)) {
      for (const Beam& beam : group->beams) Finish(beam, FinishReason::kLength, group);
    }
    group->is_done = is_over || is_last;
  }

 private:
  struct Candidate {
    Beam beam;
    int parent;
  };

  std::vector<Candidate> Rank(const std::map<TokenId, int>& taken, const Group& group) const {
    const int num_ranks = std::max(2, 1 + static_cast<int>(stops_.size())) * width_;
    std::vector<Candidate> ranked;
    for (size_t parent = 0; parent < group.beams.size(); ++parent) {
      const Beam& beam = group.beams[parent];
      const ShadowModel& model = ModelAt(model_, changes_, static_cast<int>(beam.tokens.size()));
      for (const TokenLogprob& next : model.Candidates(beam.prefix, params_.width + num_ranks)) {
        const auto count = taken.find(next.token);
        const float penalty = count == taken.end() ? 0 : params_.diversity_penalty * static_cast<float>(count->second);
        Candidate candidate{{beam.tokens, ExtendPrefix(beam.prefix, next.token), next.logprob - penalty + beam.sum},
                            static_cast<int>(parent)};
        candidate.beam.tokens.push_back(next.token);
        ranked.push_back(std::move(candidate));
      }
    }
    std::sort(ranked.begin(), ranked.end(), [](const Candidate& a, const Candidate& b) {
      return std::tuple(-a.beam.sum, a.parent, a.beam.tokens.back()) <
             std::tuple(-b.beam.sum, b.parent, b.beam.tokens.back());
    });
    if (static_cast<int>(ranked.size()) > num_ranks) ranked.resize(num_ranks);
    return ranked;
  }

  float Score(float sum, int length) const {
    return sum / static_cast<float>(std::pow(static_cast<double>(length), static_cast<double>(params_.length_penalty)));
  }

  bool IsOver(int step, float best_sum, const Group& group) const {
    if (static_cast<int>(group.finished.size()) < width_) return false;
    if (params_.early_stopping == EarlyStopping::kWhenFull || params_.width == 1) return true;
    const bool grows = params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
    const float sum = params_.num_groups > 1 ? best_sum : group.beams.front().sum;
    return Score(sum, grows ? max_tokens_ : step) <= group.finished.back().score;
  }

  void Finish(const Beam& beam, FinishReason reason, Group* group) const {
    group->finished.push_back({beam.tokens, reason, Score(beam.sum, static_cast<int>(beam.tokens.size()))});
    std::stable_sort(group->finished.begin(), group->finished.end(),
                     [](const SoloSample& a, const SoloSample& b) { return a.score > b.score; });
    if (static_cast<int>(group->finished.size()) > width_) group->finished.pop_back();
  }

  const ShadowModel& model_;
  const absl::Span<const ModelChange> changes_;
  const BeamParams& params_;
  const int max_tokens_;
  const std::vector<TokenId>& stops_;
  const int width_;  // For one group.
};

}  // namespace

std::vector<SoloSample> ReferenceBeamSearch(const ShadowModel& model, absl::Span<const ModelChange> changes,
                                            const BeamParams& params, int max_tokens,
                                            const std::vector<TokenId>& stop_token_ids, uint64_t prompt_prefix) {
  const Search search(model, changes, params, max_tokens, stop_token_ids);
  std::vector<Group> groups(params.num_groups, Group{{{{}, prompt_prefix, 0}}, {}});
  for (int step = 1; step <= max_tokens; ++step) {
    std::map<TokenId, int> taken;
    for (Group& group : groups) search.Advance(step, &taken, &group);
  }
  // Each group contributes at most the number of hypotheses that the search returns.
  std::vector<SoloSample> best;
  for (Group& group : groups) {
    for (size_t i = 0; i < group.finished.size() && static_cast<int>(i) < params.num_return; ++i) {
      best.push_back(std::move(group.finished[i]));
    }
  }
  std::stable_sort(best.begin(), best.end(),
                   [](const SoloSample& a, const SoloSample& b) { return a.score > b.score; });
  if (static_cast<int>(best.size()) > params.num_return) best.resize(params.num_return);
  return best;
}

}  // namespace quire
