// SPDX-License-Identifier: Apache-2.0

#include "scheduler/beam_search.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using Extension = BeamSearch::Extension;
using Extensions = std::vector<Extension>;
using Hypothesis = BeamSearch::Hypothesis;
using Lists = std::vector<std::vector<TokenLogprob>>;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr TokenId kStop = 9;

// Width 2 without a length penalty, so that scores are sums of logprobs.
BeamParams TwoBeams(EarlyStopping early_stopping = EarlyStopping::kHeuristic) {
  return {.width = 2, .length_penalty = 0, .early_stopping = early_stopping};
}

BeamSearch Search(const BeamParams& params, int max_tokens = 100, const StopCondition* condition = nullptr) {
  return BeamSearch(params, max_tokens, {kStop}, condition);
}

MATCHER_P3(HypothesisIs, tokens, score, reason, "") {
  *result_listener << testing::PrintToString(arg.tokens) << " with score " << arg.score;
  return arg.tokens == std::vector<TokenId>(tokens) && std::abs(arg.score - score) < 1e-5 && arg.reason == reason;
}

using Ids = std::vector<TokenId>;
constexpr FinishReason kLength = FinishReason::kLength;
constexpr FinishReason kStopped = FinishReason::kStopToken;

TEST(BeamSearchTest, TheBestSumsOfAllBeamsLiveOn) {
  BeamSearch search = Search(TwoBeams());
  EXPECT_EQ(search.Advance(Lists{{{1, -1}, {2, -2}, {3, -3}}}), (Extensions{{0, 1, -1}, {0, 2, -2}}));
  // Sums: 4 after 2 [-2.5], 5 after 1 [-3.5], 6 after 1 [-4], 7 after 2 [-6].
  EXPECT_EQ(search.Advance(Lists{{{5, -2.5}, {6, -3}}, {{4, -0.5}, {7, -4}}}),
            (Extensions{{1, 4, -0.5}, {0, 5, -2.5}}));
  EXPECT_FALSE(search.is_done());
}

TEST(BeamSearchTest, TiesGoToTheBetterParentThenToTheLowerToken) {
  BeamSearch search = Search(TwoBeams());
  EXPECT_EQ(search.Advance(Lists{{{3, -1}, {2, -1}, {1, -1}}}), (Extensions{{0, 1, -1}, {0, 2, -1}}));
  EXPECT_EQ(search.Advance(Lists{{{8, -2}, {7, -2}}, {{4, -2}, {5, -2}}}), (Extensions{{0, 7, -2}, {0, 8, -2}}));
}

TEST(BeamSearchTest, AStopTokenFinishesOnlyWhenItsRankIsInsideTheWidth) {
  // The example of the header.
  BeamSearch search = Search({.width = 2, .num_return = 2, .length_penalty = 1}, 3);
  search.Advance(Lists{{{1, -1}, {2, -2}}});
  EXPECT_EQ(search.Advance(Lists{{{kStop, -0.1}, {3, -3}, {4, -4}}, {{3, -0.5}, {kStop, -1}, {4, -3}}}),
            (Extensions{{1, 3, -0.5}, {0, 3, -3}}));
  EXPECT_THAT(search.Advance(Lists{{{5, -1}, {6, -9}}, {{5, -9}, {6, -9}}}), IsEmpty());
  EXPECT_TRUE(search.is_done());
  // If the second stop token had counted, [2 9] with score -1.5 would be here.
  EXPECT_THAT(search.Best(),
              ElementsAre(HypothesisIs(Ids{1, kStop}, -0.55, kStopped), HypothesisIs(Ids{2, 3, 5}, -3.5 / 3, kLength)));
}

TEST(BeamSearchTest, AHypothesisCarriesTheLogprobsOfItsTokens) {
  BeamSearch search = Search({.width = 2, .length_penalty = 2}, 2);
  search.Advance(Lists{{{1, -1}, {2, -2}}});
  search.Advance(Lists{{{3, -1}, {4, -2}}, {{3, -5}, {4, -6}}});
  const std::vector<Hypothesis> best = search.Best();
  ASSERT_THAT(best, ElementsAre(HypothesisIs(Ids{1, 3}, -2.0 / 4, kLength)));
  EXPECT_THAT(best[0].logprobs, ElementsAre(-1, -1));
}

// Two finished hypotheses, [9] with sum -1 and [1 9] with sum -3, and the live beams [1 2] with -3.5 and [1 3] with -9.
Extensions AdvanceUntilFull(BeamSearch* search) {
  search->Advance(Lists{{{kStop, -1}, {1, -2}, {2, -4}}});
  return search->Advance(Lists{{{kStop, -1}, {2, -1.5}, {3, -7}}, {{3, -8}, {4, -9}}});
}

TEST(BeamSearchTest, TheHeuristicEndsWhenTheBestLiveBeamCouldNotEndBetterNow) {
  BeamSearch worse = Search(TwoBeams());
  EXPECT_THAT(AdvanceUntilFull(&worse), IsEmpty());  // -3.5 is no better than -3.
  EXPECT_TRUE(worse.is_done());

  BeamSearch better = Search({.width = 2, .length_penalty = 1});
  EXPECT_THAT(AdvanceUntilFull(&better), IsEmpty());  // -3.5 / 2 is no better than -3 / 2.

  BeamSearch promoted = Search({.width = 2, .num_return = 2, .length_penalty = -1});
  // -2 for [9] with length 1; -6 for [1 9], and -7 for [1 2] now.
  EXPECT_THAT(AdvanceUntilFull(&promoted), IsEmpty());
}

TEST(BeamSearchTest, NeverGoesOnWhileALongerHypothesisCouldBeBetter) {
  const BeamParams params = {.width = 2, .length_penalty = 1, .early_stopping = EarlyStopping::kNever};
  BeamSearch may_grow = Search(params, 3);
  EXPECT_THAT(AdvanceUntilFull(&may_grow), SizeIs(2));  // -3.5 / 3 at max_tokens would beat -3 / 2.
  EXPECT_FALSE(may_grow.is_done());

  BeamSearch may_not = Search(params, 2);
  EXPECT_THAT(AdvanceUntilFull(&may_not), IsEmpty());

  // Without a reward for length, sums only fall.
  BeamSearch no_reward = Search(TwoBeams(EarlyStopping::kNever));
  EXPECT_THAT(AdvanceUntilFull(&no_reward), IsEmpty());
}

TEST(BeamSearchTest, WithoutARewardForLengthTheBestScoreIsTheOneOfNow) {
  for (EarlyStopping early_stopping : {EarlyStopping::kHeuristic, EarlyStopping::kNever}) {
    BeamSearch search = Search({.width = 2, .length_penalty = -1, .early_stopping = early_stopping});
    search.Advance(Lists{{{1, -1}, {kStop, -20}, {2, -30}}});
    // [9] has score -20 and [1 9] -15 * 2. The live [1 2] has -10 * 2 now, and at max_tokens at best -10 * 100.
    EXPECT_THAT(search.Advance(Lists{{{2, -9}, {kStop, -14}, {3, -16}}, {{3, -99}, {4, -99}}}), SizeIs(2));
  }
}

TEST(BeamSearchTest, WhenFullEndsAtTheWidthThFinishedHypothesis) {
  BeamSearch search = Search(TwoBeams(EarlyStopping::kWhenFull));
  search.Advance(Lists{{{kStop, -8}, {1, -9}, {2, -10}}});
  EXPECT_FALSE(search.is_done());
  // The live beam [1 3] with -9.1 might still do better than [1 9] with -18.
  search.Advance(Lists{{{3, -0.1}, {kStop, -0.2}, {4, -5}}, {{3, -9}, {4, -9}}});
  EXPECT_TRUE(search.is_done());
  EXPECT_THAT(search.Best(), ElementsAre(HypothesisIs(Ids{kStop}, -8, kStopped)));
}

TEST(BeamSearchTest, ABetterHypothesisReplacesTheWorstFinishedOne) {
  BeamSearch search =
      Search({.width = 2, .num_return = 2, .length_penalty = 1, .early_stopping = EarlyStopping::kNever});
  search.Advance(Lists{{{kStop, -3}, {1, -3.5}, {2, -4}}});
  EXPECT_THAT(search.Advance(Lists{{{3, -0.1}, {kStop, -0.5}, {4, -9}}, {{3, -9}, {4, -9}}}), SizeIs(2));
  EXPECT_THAT(search.Advance(Lists{{{kStop, -0.1}, {3, -99}, {4, -99}}, {{3, -99}, {4, -99}}}), SizeIs(2));
  EXPECT_THAT(search.Advance(Lists{{{3, -999}, {4, -999}}, {{3, -999}, {4, -999}}}), IsEmpty());
  EXPECT_THAT(search.Best(), ElementsAre(HypothesisIs(Ids{1, 3, kStop}, -3.7 / 3, kStopped),
                                         HypothesisIs(Ids{1, kStop}, -2, kStopped)));
}

TEST(BeamSearchTest, AStopTokenAtTheLastTokenIsAStop) {
  BeamSearch search = Search({.width = 2, .num_return = 2, .length_penalty = 0}, 1);
  EXPECT_THAT(search.Advance(Lists{{{1, -1}, {kStop, -2}, {2, -3}}}), IsEmpty());
  EXPECT_THAT(search.Best(), ElementsAre(HypothesisIs(Ids{1}, -1, kLength), HypothesisIs(Ids{kStop}, -2, kStopped)));
}

TEST(BeamSearchTest, WidthOneEndsWithTheFirstStopTokenAsGreedySearch) {
  BeamSearch search = Search({.width = 1, .length_penalty = 2});
  EXPECT_EQ(search.Advance(Lists{{{1, -1}, {kStop, -2}}}), (Extensions{{0, 1, -1}}));
  EXPECT_THAT(search.Advance(Lists{{{kStop, -1}, {1, -1.1}}}), IsEmpty());
  EXPECT_THAT(search.Best(), ElementsAre(HypothesisIs(Ids{1, kStop}, -0.5, kStopped)));
}

TEST(BeamSearchTest, MaskedCandidatesAreNone) {
  BeamSearch search = Search({.width = 2, .num_return = 2, .length_penalty = 0}, 2);
  EXPECT_EQ(search.Advance(Lists{{{1, -1}, {2, -INFINITY}, {3, -INFINITY}}}), (Extensions{{0, 1, -1}}));
  EXPECT_THAT(search.Advance(Lists{{{4, -1}, {5, NAN}}}), IsEmpty());
  EXPECT_THAT(search.Best(), ElementsAre(HypothesisIs(Ids{1, 4}, -2, kLength)));
}

TEST(BeamSearchTest, ASearchWithoutCandidatesIsDone) {
  BeamSearch search = Search(TwoBeams());
  EXPECT_THAT(search.Advance(Lists{{{1, -INFINITY}}}), IsEmpty());
  EXPECT_TRUE(search.is_done());
  EXPECT_THAT(search.Best(), IsEmpty());
}

// A condition that is met by a token 7 right after a token 6.
class SevenAfterSix : public StopCondition {
 public:
  int num_tokens_needed() const override { return 2; }
  bool IsMet(absl::Span<const TokenId> last_tokens, int num_tokens) const override {
    EXPECT_EQ(last_tokens.size(), std::min(num_tokens, 2));
    return last_tokens.size() == 2 && last_tokens[0] == 6 && last_tokens[1] == 7;
  }
};

TEST(BeamSearchTest, AStopConditionFinishesLikeAStopToken) {
  const SevenAfterSix condition;
  BeamSearch search = Search(TwoBeams(EarlyStopping::kWhenFull), 100, &condition);
  search.Advance(Lists{{{7, -1}, {6, -2}, {5, -3}}});
  EXPECT_EQ(search.Advance(Lists{{{7, -2}, {1, -8}}, {{7, -0.5}, {1, -2}}}), (Extensions{{0, 7, -2}, {1, 1, -2}}));
  // The second 7 after a 6 is outside the width.
  EXPECT_EQ(search.Advance(Lists{{{6, -1}, {1, -2}}, {{kStop, -3}, {1, -4}}}), (Extensions{{0, 6, -1}, {0, 1, -2}}));
  EXPECT_THAT(search.Advance(Lists{{{7, -1}, {1, -2}}, {{2, -3}, {1, -4}}}), IsEmpty());
  EXPECT_THAT(search.Best(), ElementsAre(HypothesisIs(Ids{6, 7}, -2.5, kStopped)));
}

// A condition that is always met.
class Always : public StopCondition {
 public:
  int num_tokens_needed() const override { return 1; }
  bool IsMet(absl::Span<const TokenId> last_tokens, int) const override { return last_tokens.size() == 1; }
};

TEST(BeamSearchTest, ASearchWhoseCandidatesAllStopIsDone) {
  const Always condition;
  BeamSearch search = Search({.width = 2, .num_return = 2, .length_penalty = 0}, 100, &condition);
  EXPECT_THAT(search.Advance(Lists{{{1, -1}, {2, -2}, {3, -3}, {4, -4}}}), IsEmpty());
  EXPECT_THAT(search.Best(), ElementsAre(HypothesisIs(Ids{1}, -1, kStopped), HypothesisIs(Ids{2}, -2, kStopped)));
}

TEST(BeamSearchTest, CandidatesSufficeForStopTokensConditionsAndPenalties) {
  EXPECT_EQ(BeamSearch({.width = 4}, 1, {}, nullptr).num_candidates(), 4);
  EXPECT_EQ(BeamSearch({.width = 4}, 1, {8, 9}, nullptr).num_candidates(), 4 + 2);
  const Always condition;
  EXPECT_EQ(BeamSearch({.width = 4}, 1, {}, &condition).num_candidates(), 2 * 4);
  EXPECT_EQ(BeamSearch({.width = 4}, 1, {8, 9}, &condition).num_candidates(), 3 * 4);
  const BeamParams groups = {.width = 4, .num_groups = 2, .diversity_penalty = 1};
  EXPECT_EQ(BeamSearch(groups, 1, {8, 9}, nullptr).num_candidates(), 2 + 2 + 2);
  EXPECT_EQ(BeamSearch(groups, 1, {8, 9}, &condition).num_candidates(), 3 * 2 + 2);
}

TEST(BeamSearchTest, AgreedTokensAreThoseOfAllLiveBeams) {
  BeamSearch search = Search(TwoBeams());
  search.Advance(Lists{{{1, -1}, {2, -2}}});
  EXPECT_THAT(search.agreed_tokens(), IsEmpty());
  search.Advance(Lists{{{3, -1}, {4, -1}}, {{3, -9}, {4, -9}}});  // [1 3] and [1 4].
  EXPECT_THAT(search.agreed_tokens(), ElementsAre(1));
  search.Advance(Lists{{{5, -9}, {6, -9}}, {{5, -1}, {6, -1}}});  // [1 4 5] and [1 4 6].
  EXPECT_THAT(search.agreed_tokens(), ElementsAre(1, 4));
  EXPECT_THAT(search.agreed_logprobs(), ElementsAre(-1, -1));
}

TEST(BeamSearchTest, AFinishedHypothesisThatMayBeReturnedHoldsBackAgreement) {
  BeamSearch search = Search({.width = 2, .length_penalty = 1, .early_stopping = EarlyStopping::kNever}, 4);
  search.Advance(Lists{{{1, -1}, {kStop, -2}, {2, -9}}});
  search.Advance(Lists{{{3, -0.1}, {4, -0.2}}, {{3, -9}, {4, -9}}});
  EXPECT_THAT(search.agreed_tokens(), IsEmpty());  // [9] may still be returned.
  search.Advance(Lists{{{kStop, -0.1}, {5, -0.2}, {6, -9}}, {{5, -0.2}, {6, -9}}});
  // [1 3 9] takes the only place. The live beams are [1 3 5] and [1 4 5].
  EXPECT_THAT(search.agreed_tokens(), ElementsAre(1));
  search.Advance(Lists{{{5, -99}, {6, -99}}, {{5, -99}, {6, -99}}});
  EXPECT_TRUE(search.is_done());
  EXPECT_THAT(search.agreed_tokens(), ElementsAre(1, 3, kStop));
}

TEST(BeamSearchTest, ALaterGroupPaysForTheTokensOfEarlierOnes) {
  BeamSearch search =
      Search({.width = 3, .num_return = 3, .length_penalty = 0, .num_groups = 3, .diversity_penalty = 0.6}, 2);
  // The second group finds 1 at -1.6 and takes 2. The third finds 1 at -1.6, 2 at -2.1 and takes 1.
  EXPECT_EQ(search.Advance(Lists{{{1, -1}, {2, -1.5}, {3, -2.5}}}), (Extensions{{0, 1, -1}, {0, 2, -1.5}, {0, 1, -1}}));
  // All groups want 4; the third pays twice. [1 4] of the first and the third agree with nobody else.
  EXPECT_THAT(search.Advance(Lists{{{4, -1}, {5, -4}}, {{4, -1}, {5, -4}}, {{4, -1}, {5, -4}}}), IsEmpty());
  EXPECT_THAT(search.Best(), ElementsAre(HypothesisIs(Ids{1, 4}, -2, kLength), HypothesisIs(Ids{2, 4}, -3.1, kLength),
                                         HypothesisIs(Ids{1, 4}, -1.6 - 2.2, kLength)));
  EXPECT_THAT(search.Best()[2].logprobs, ElementsAre(-1, -1)) << "penalties belong to the score only";
}

TEST(BeamSearchTest, AGroupThatIsOverHasNoBeams) {
  BeamSearch search =
      Search({.width = 2, .num_return = 2, .length_penalty = 0, .num_groups = 2, .diversity_penalty = 5});
  EXPECT_EQ(search.Advance(Lists{{{1, -1}, {2, -1.2}, {kStop, -5}}}), (Extensions{{0, 1, -1}, {0, 2, -1.2}}));
  // The first group is over with [1 9]. Its [1 3] still counts in this step: the second group takes 4.
  EXPECT_EQ(search.Advance(Lists{{{kStop, -0.1}, {3, -2}, {4, -3}}, {{3, -0.1}, {4, -1}, {kStop, -2}}}),
            (Extensions{{1, 4, -1}}));
  EXPECT_THAT(search.Advance(Lists{{{kStop, -0.1}, {3, -3}, {4, -3}}}), IsEmpty());
  EXPECT_THAT(search.Best(),
              ElementsAre(HypothesisIs(Ids{1, kStop}, -1.1, kStopped), HypothesisIs(Ids{2, 4, kStop}, -2.3, kStopped)));
}

// Groups of two beams that take the same tokens, as far as their width of 2 allows.
const BeamParams kTwoByTwo = {.width = 4, .length_penalty = 0, .num_groups = 2, .diversity_penalty = 0.001};

// Two finished hypotheses in each group: [9] with sum -8 and [1 9] with -3.
Extensions AdvanceGroupsUntilFull(BeamSearch* search) {
  search->Advance(Lists{{{1, -2}, {kStop, -8}, {2, -9}, {3, -10}}});
  const std::vector<TokenLogprob> after_one = {{4, -0.5}, {kStop, -1}, {5, -7}, {6, -8}};
  const std::vector<TokenLogprob> after_two = {{4, -20}, {5, -20}, {6, -20}, {7, -20}};
  return search->Advance(Lists{after_one, after_two, after_one, after_two});
}

TEST(BeamSearchTest, AGroupThatIsOverAtTheLastTokenLeavesItsBeams) {
  BeamParams params = kTwoByTwo;
  params.num_return = 4;
  params.early_stopping = EarlyStopping::kWhenFull;
  BeamSearch search = Search(params, 2);
  EXPECT_THAT(AdvanceGroupsUntilFull(&search), IsEmpty());
  for (const Hypothesis& hypothesis : search.Best()) EXPECT_EQ(hypothesis.reason, kStopped);
}

TEST(BeamSearchTest, WithoutGroupsLiveBeamsCompeteAtTheLastToken) {
  BeamSearch search = Search({.width = 2, .length_penalty = 0, .early_stopping = EarlyStopping::kWhenFull}, 2);
  search.Advance(Lists{{{1, -2}, {kStop, -8}, {2, -9}}});
  EXPECT_THAT(search.Advance(Lists{{{4, -0.5}, {kStop, -1}, {5, -7}}, {{4, -20}, {5, -20}, {6, -20}}}), IsEmpty());
  EXPECT_THAT(search.Best(), ElementsAre(HypothesisIs(Ids{1, 4}, -2.5, kLength)));
}

TEST(BeamSearchTest, InGroupsTheBestCandidateCountsEvenWhenItIsAStopToken) {
  BeamSearch groups = Search(kTwoByTwo);
  groups.Advance(Lists{{{1, -2}, {kStop, -8}, {2, -9}, {3, -10}}});
  const std::vector<TokenLogprob> after_one = {{kStop, -1}, {4, -7}, {5, -7}, {6, -8}};
  const std::vector<TokenLogprob> after_two = {{4, -20}, {5, -20}, {6, -20}, {7, -20}};
  // The live beams have no more than -9, the worst hypothesis -8; but [1 9] has -3.
  EXPECT_THAT(groups.Advance(Lists{after_one, after_two, after_one, after_two}), SizeIs(4));

  BeamSearch plain = Search(TwoBeams());
  plain.Advance(Lists{{{1, -2}, {kStop, -8}, {2, -9}}});
  EXPECT_THAT(plain.Advance(Lists{after_one, after_two}), IsEmpty());
}

TEST(BeamSearchTest, AgreementReachesAcrossGroups) {
  BeamSearch search = Search({.width = 2, .length_penalty = 0, .num_groups = 2, .diversity_penalty = 0.5});
  search.Advance(Lists{{{1, -1}, {2, -2}}});
  EXPECT_THAT(search.agreed_tokens(), ElementsAre(1));
  search.Advance(Lists{{{1, -1}, {2, -1.1}}, {{1, -1}, {2, -1.1}}});  // [1 1] and [1 2].
  EXPECT_THAT(search.agreed_tokens(), ElementsAre(1));
}

}  // namespace
}  // namespace quire
