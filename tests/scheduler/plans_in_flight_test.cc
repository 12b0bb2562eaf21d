// SPDX-License-Identifier: Apache-2.0

#include "scheduler/plans_in_flight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// A slice of one token that samples.
SliceInFlight SamplingSlice(bool has_candidates) {
  return {.request = RequestId{1},
          .sequence = SequenceId{1},
          .row = RowId{0},
          .first_position = 0,
          .num_tokens = 1,
          .is_at_front = true,
          .sample = true,
          .has_candidates = has_candidates,
          .num_prompt_logprobs = 0,
          .has_embedding = false};
}

StepResult SampledResult(StepId step) {
  SliceResult slice;
  slice.sampled = true;
  return {step, {slice}};
}

TEST(PlansInFlightTest, ResultsAnswerTheOldestPlanFirst) {
  PlansInFlight plans;
  plans.Add(StepId{1}).slices.push_back(SamplingSlice(false));
  plans.Add(StepId{2}).slices.push_back(SamplingSlice(false));
  EXPECT_THAT(plans.CheckResult(SampledResult(StepId{2})).message(), HasSubstr("step 1 is due"));
  EXPECT_EQ(plans.CheckResult(SampledResult(StepId{1})), absl::OkStatus());
  EXPECT_EQ(plans.TakeOldest().step, StepId{1});
  EXPECT_EQ(plans.CheckResult(SampledResult(StepId{2})), absl::OkStatus());
  EXPECT_EQ(plans.size(), 1);
}

TEST(PlansInFlightTest, OnlySlicesOfBeamsMayHaveCandidates) {
  StepResult result = SampledResult(StepId{1});
  result.slices[0].candidates = {{7, -1.0f}};
  PlansInFlight drawing;
  drawing.Add(StepId{1}).slices.push_back(SamplingSlice(false));
  EXPECT_THAT(drawing.CheckResult(result).message(), HasSubstr("has 0 candidates, its result has 1"));
  PlansInFlight beams;
  beams.Add(StepId{1}).slices.push_back(SamplingSlice(true));
  EXPECT_EQ(beams.CheckResult(result), absl::OkStatus());
}

TEST(PlansInFlightTest, OnlySlicesWithAPoolingHaveEmbeddings) {
  StepResult result = SampledResult(StepId{1});
  PlansInFlight without;
  without.Add(StepId{1}).slices.push_back(SamplingSlice(false));
  result.slices[0].embedding = {1, 2};
  EXPECT_THAT(without.CheckResult(result).message(), HasSubstr("has no embedding, its result has 2 values"));
  PlansInFlight with;
  SliceInFlight slice = SamplingSlice(false);
  slice.has_embedding = true;
  with.Add(StepId{1}).slices.push_back(slice);
  EXPECT_EQ(with.CheckResult(result), absl::OkStatus());
  result.slices[0].embedding.clear();
  EXPECT_THAT(with.CheckResult(result).message(), HasSubstr("has an embedding, its result has 0 values"));
  result.slices[0] = SliceResult();
  result.slices[0].is_postponed = true;
  EXPECT_THAT(with.CheckResult(result).message(), HasSubstr("is said to be postponed, and its slice draws nothing"));
}

TEST(PlansInFlightTest, AFailureNamesTheSequenceOfItsSliceAndStandsAlone) {
  PlansInFlight plans;
  plans.Add(StepId{1}).slices.push_back(SamplingSlice(false));
  StepResult result{StepId{1}, {SliceResult()}};
  result.slices[0].failure = {SequenceId{2}, SequenceFailure::Reason::kLogitsNotFinite, ""};
  EXPECT_THAT(plans.CheckResult(result).message(), HasSubstr("sequence 2 is said to have failed in the place of"));
  result.slices[0].failure->sequence = SequenceId{1};
  EXPECT_EQ(plans.CheckResult(result), absl::OkStatus());
  result.slices[0].sampled = true;
  EXPECT_THAT(plans.CheckResult(result).message(), HasSubstr("has failed, and its slice has a result"));
}

TEST(PlansInFlightTest, NoResultIsDueWithoutAPlan) {
  PlansInFlight plans;
  plans.Add(StepId{1}).slices.push_back(SamplingSlice(false));
  plans.Clear();
  EXPECT_THAT(plans.CheckResult(SampledResult(StepId{1})).message(), HasSubstr("no plan is in flight"));
}

}  // namespace
}  // namespace quire
