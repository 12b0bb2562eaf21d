// SPDX-License-Identifier: Apache-2.0

#include "scheduler/beam_search_state.h"

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/beam_search.h"
#include "tests/random.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

constexpr TokenId kEndToken = 0;
constexpr int kNumTokens = 30;

BeamSearch MakeSearch(const Request& request) {
  return BeamSearch(*request.beam, request.max_tokens, request.stop_token_ids, nullptr);
}

Request DrawRequest(Random* random) {
  Request request;
  request.max_tokens = random->Between(2, 12);
  request.stop_token_ids = {kEndToken};
  BeamParams& params = request.beam.emplace();
  params.num_groups = random->Between(1, 2);
  params.width = params.num_groups * random->Between(1, 3);
  params.num_return = random->Between(1, params.width);
  params.length_penalty = static_cast<float>(random->Between(0, 2));
  params.early_stopping = static_cast<EarlyStopping>(random->Below(3));
  params.diversity_penalty = params.num_groups > 1 ? 0.5f : 0.0f;
  return request;
}

std::vector<std::vector<TokenLogprob>> DrawCandidates(int num_beams, int count, Random* random) {
  std::vector<std::vector<TokenLogprob>> lists(num_beams);
  for (std::vector<TokenLogprob>& list : lists) {
    const int first = random->Below(kNumTokens);
    float logprob = 0;
    for (int i = 0; i < count; ++i) {
      logprob -= static_cast<float>(random->Between(0, 64)) / 64;
      list.push_back({(first + i) % kNumTokens, logprob});
    }
  }
  return lists;
}

// The live beams get ids 100, 101, ...
std::string Save(const BeamSearch& search) {
  BeamSearchState state = search.state();
  for (size_t i = state.LiveNodes().size(); i > 0; --i) state.sequences.push_back(SequenceId{99 + i});
  return EncodeBeamSearchState(state);
}

TEST(BeamSearchStateTest, ASearchThatIsMadeFromItGoesOnLikeTheFirstOne) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Request request = DrawRequest(&random);
    BeamSearch search = MakeSearch(request);
    std::unique_ptr<BeamSearch> other(new BeamSearch(MakeSearch(request)));
    size_t num_beams = 1;
    while (true) {
      const auto lists = DrawCandidates(static_cast<int>(num_beams), search.num_candidates(), &random);
      const std::vector<BeamSearch::Extension> extensions = search.Advance(lists);
      ASSERT_EQ(other->Advance(lists), extensions);
      ASSERT_EQ(other->agreed_tokens(), search.agreed_tokens());
      ASSERT_EQ(other->agreed_logprobs(), search.agreed_logprobs());
      if (search.is_done()) break;
      num_beams = extensions.size();
      const std::string bytes = Save(search);
      EXPECT_EQ(NumGeneratedOf(bytes), search.state().num_generated);
      const std::optional<BeamSearchState> state = DecodeBeamSearchState(bytes, request, kNumTokens);
      ASSERT_TRUE(state.has_value());
      ASSERT_EQ(EncodeBeamSearchState(*state), bytes);
      other.reset(new BeamSearch(MakeSearch(request)));
      other->Restore(*state);
      ASSERT_EQ(other->agreed_tokens(), search.agreed_tokens());
    }
    const std::vector<BeamSearch::Hypothesis> best = search.Best();
    const std::vector<BeamSearch::Hypothesis> other_best = other->Best();
    ASSERT_EQ(other_best.size(), best.size());
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_EQ(other_best[i].tokens, best[i].tokens);
      EXPECT_EQ(other_best[i].logprobs, best[i].logprobs);
      EXPECT_EQ(other_best[i].score, best[i].score);
    }
  }
}

// Width 2, two tokens: [1 3] and [1 4] live, [1] is agreed, and [0] has ended.
Request SmallRequest() {
  Request request;
  request.max_tokens = 5;
  request.stop_token_ids = {kEndToken};
  request.beam = BeamParams{.width = 2, .num_return = 1, .length_penalty = 0};
  return request;
}

BeamSearch SmallSearch() {
  BeamSearch search = MakeSearch(SmallRequest());
  search.Advance(std::vector<std::vector<TokenLogprob>>{{{1, -1}, {2, -2}, {5, -3}}});
  search.Advance(std::vector<std::vector<TokenLogprob>>{{{3, -0.5}, {4, -0.75}, {5, -9}}, {{3, -7}, {4, -8}, {5, -9}}});
  return search;
}

TEST(BeamSearchStateTest, NodesAreSharedAndNothingThatHasDiedIsThere) {
  const BeamSearchState state = SmallSearch().state();
  EXPECT_EQ(state.num_generated, 2);
  EXPECT_EQ(state.nodes.size(), 3u);
  EXPECT_EQ(state.agreed_node, 0);
  ASSERT_EQ(state.LiveNodes().size(), 2u);
  EXPECT_THAT(state.TokensOf(state.LiveNodes()[1]), ElementsAre(TokenLogprob{1, -1}, TokenLogprob{4, -0.75}));
}

TEST(BeamSearchStateTest, AStateThatNoSuchSearchCanHaveIsRefused) {
  const Request request = SmallRequest();
  BeamSearchState good = SmallSearch().state();
  good.sequences = {SequenceId{7}, SequenceId{8}};
  const auto is_read = [](const BeamSearchState& state, const Request& by) {
    return DecodeBeamSearchState(EncodeBeamSearchState(state), by, kNumTokens).has_value();
  };
  ASSERT_TRUE(is_read(good, request));
  Request shorter = request;
  shorter.max_tokens = 2;
  EXPECT_FALSE(is_read(good, shorter)) << "the search would be over";
  Request narrower = request;
  narrower.beam->width = 1;
  EXPECT_FALSE(is_read(good, narrower));
  Request grouped = request;
  grouped.beam->num_groups = 2;
  EXPECT_FALSE(is_read(good, grouped));
  EXPECT_FALSE(DecodeBeamSearchState(EncodeBeamSearchState(good) + "x", request, kNumTokens).has_value());
  EXPECT_FALSE(DecodeBeamSearchState(EncodeBeamSearchState(good), request, /*vocab_size=*/4).has_value());
  BeamSearchState bad = good;
  bad.sequences[1] = bad.sequences[0];
  EXPECT_FALSE(is_read(bad, request)) << "one sequence for two beams";
  bad = good;
  bad.groups[0].beams[0].node = 0;
  EXPECT_FALSE(is_read(bad, request)) << "a beam that is too short";
  bad = good;
  bad.agreed_node = 1;
  EXPECT_FALSE(is_read(bad, request)) << "not all beams begin with the agreed tokens";
  bad = good;
  bad.groups[0].is_done = true;
  EXPECT_FALSE(is_read(bad, request));
  bad = good;
  bad.groups[0].beams[0].sum = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(is_read(bad, request));
  bad = good;
  bad.groups[0].finished.assign(1, {BeamSearchState::kDropped, 0, FinishReason::kStopToken});
  EXPECT_FALSE(is_read(bad, request)) << "the best hypothesis is never dropped";
  bad = good;
  bad.nodes.push_back({0, {2, -1}});
  EXPECT_FALSE(is_read(bad, request)) << "a node that nothing uses";
  EXPECT_FALSE(DecodeBeamSearchState("", request, kNumTokens).has_value());
}

// The sanitizers run this test.
TEST(BeamSearchStateTest, NoBytesCrashTheSearch) {
  int num_read = 0;
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    Random random(seed);
    const Request request = DrawRequest(&random);
    BeamSearch search = MakeSearch(request);
    search.Advance(DrawCandidates(1, search.num_candidates(), &random));
    if (search.is_done()) continue;
    std::string bytes = Save(search);
    for (int i = random.Between(1, 3); i > 0; --i) {
      bytes[random.Below(static_cast<int>(bytes.size()))] = static_cast<char>(random.Below(256));
    }
    const std::optional<BeamSearchState> state = DecodeBeamSearchState(bytes, request, kNumTokens);
    if (!state.has_value()) continue;
    ++num_read;
    BeamSearch other = MakeSearch(request);
    other.Restore(*state);
    int num_beams = static_cast<int>(state->sequences.size());
    while (!other.is_done()) {
      num_beams = static_cast<int>(other.Advance(DrawCandidates(num_beams, other.num_candidates(), &random)).size());
    }
    EXPECT_LE(other.Best().size(), static_cast<size_t>(request.beam->num_return));
    EXPECT_FALSE(other.Best().empty()) << "a client would wait for an end that never comes, seed " << seed;
  }
  EXPECT_GT(num_read, 100);
}

}  // namespace
}  // namespace quire
