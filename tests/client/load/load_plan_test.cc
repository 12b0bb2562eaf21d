// SPDX-License-Identifier: Apache-2.0

#include "client/load/load_plan.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/load/samples.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kVocabSize = 1000;
constexpr int kContext = 4096;

std::vector<PlannedRequest> FirstOf(LoadPlan& plan, int count) {
  std::vector<PlannedRequest> requests(count);
  for (int i = 0; i < count; ++i) {
    if (plan.Next(&requests[i])) continue;
    requests.resize(i);
    break;
  }
  return requests;
}

std::vector<PlannedRequest> FirstOf(LoadPlan&& plan, int count) {
  return FirstOf(plan, count);
}

LoadPlan Make(const LoadShape& shape, int context = kContext) {
  absl::StatusOr<LoadPlan> plan = LoadPlan::Make(shape, kVocabSize, context);
  QUIRE_CHECK(plan.ok()) << plan.status();
  return *std::move(plan);
}

std::vector<uint32_t> Tokens(const LoadPlan& plan, const PlannedRequest& request) {
  const v1::GenerateRequest made = plan.MakeRequest(request);
  return {made.token_ids().ids().begin(), made.token_ids().ids().end()};
}

int CommonTokens(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  return static_cast<int>(i);
}

// A trace file that is deleted by the destructor.
class TraceFile {
 public:
  explicit TraceFile(const std::string& content) {
    char path[] = "/tmp/quire-trace.XXXXXX";
    close(mkstemp(path));
    path_ = path;
    std::ofstream(path_) << content;
  }
  ~TraceFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(LengthDistributionTest, LengthsKeepWhatTheTextSays) {
  BenchRandom random(1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ParseLengths("128")->Draw(&random), 128);
  Samples uniform, log_normal;
  for (int i = 0; i < 20'000; ++i) {
    uniform.Add(ParseLengths("32..512")->Draw(&random));
    log_normal.Add(ParseLengths("lognormal:200,0.5")->Draw(&random));
  }
  EXPECT_EQ(uniform.Quantile(0), 32);
  EXPECT_EQ(uniform.Max(), 512);
  EXPECT_NEAR(uniform.Mean(), 272, 4);
  EXPECT_NEAR(log_normal.Mean(), 200, 4);
  for (const char* wrong : {"", "0", "5..2", "1..x", "lognormal:0", "lognormal:5,-1", "lognormal:1,2,3", "many"}) {
    EXPECT_EQ(ParseLengths(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

// The coefficient of variation of a gamma distribution is 1 / sqrt(shape).
TEST(LoadPlanTest, GapsHaveTheRateAndTheBurstinessAskedFor) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const auto requests = FirstOf(Make({.rate = 10, .burstiness = burstiness, .seed = 3}), 20'000);
    Samples gaps, squares;
    for (size_t i = 1; i < requests.size(); ++i) {
      const double gap = requests[i].arrival_s - requests[i - 1].arrival_s;
      gaps.Add(gap);
      squares.Add(gap * gap);
    }
    EXPECT_NEAR(gaps.Mean(), 0.1, 0.005) << burstiness;
    const double deviation = std::sqrt(squares.Mean() - gaps.Mean() * gaps.Mean());
    EXPECT_NEAR(deviation / gaps.Mean(), 1 / std::sqrt(burstiness), 0.1 / std::sqrt(burstiness)) << burstiness;
  }
}

TEST(LoadPlanTest, EqualSeedsMakeEqualLoads) {
  const LoadShape shape = {.input = *ParseLengths("5..50"), .output = *ParseLengths("1..9"), .rate = 7, .seed = 5};
  LoadShape other = shape;
  other.seed = 6;
  const LoadPlan plan = Make(shape);
  const auto a = FirstOf(Make(shape), 50), b = FirstOf(Make(shape), 50), c = FirstOf(Make(other), 50);
  int num_same = 0;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(a[i].arrival_s, b[i].arrival_s);
    EXPECT_EQ(a[i].output, b[i].output);
    EXPECT_EQ(Tokens(plan, a[i]), Tokens(plan, b[i]));
    EXPECT_EQ(static_cast<int>(Tokens(plan, a[i]).size()), a[i].input);
    num_same += Tokens(plan, a[i]) == Tokens(Make(other), c[i]);
  }
  EXPECT_EQ(num_same, 0);
  EXPECT_LT(CommonTokens(Tokens(plan, a[0]), Tokens(plan, a[1])), 3);
  PlannedRequest warm_up;
  ASSERT_TRUE(plan.WarmUp().Next(&warm_up));
  EXPECT_LT(CommonTokens(Tokens(plan, a[0]), Tokens(plan, warm_up)), 3);
}

TEST(LoadPlanTest, PromptsBeginWithTheSharedPrefixAndStayWithinTheVocabulary) {
  const LoadPlan plan = Make({.input = *ParseLengths("20"), .shared_prefix_tokens = 30});
  const auto requests = FirstOf(Make({.input = *ParseLengths("20"), .shared_prefix_tokens = 30}), 2);
  const std::vector<uint32_t> first = Tokens(plan, requests[0]);
  EXPECT_EQ(first.size(), 50u);
  const int common = CommonTokens(first, Tokens(plan, requests[1]));
  EXPECT_GE(common, 30);
  EXPECT_LT(common, 33);
  EXPECT_THAT(first, testing::Each(testing::Lt(static_cast<uint32_t>(kVocabSize))));
}

TEST(LoadPlanTest, PromptsOfAMooncakeTraceShareTheirChunks) {
  const TraceFile file(
      "{\"timestamp\": 500, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 7]}\n"
      "{\"timestamp\": 2500, \"input_length\": 1100, \"output_length\": 7, \"hash_ids\": [0, 7, 9]}\n"
      "{\"timestamp\": 1500, \"input_length\": 700, \"output_length\": 6, \"hash_ids\": [0, 8]}\n");
  for (const double scale : {1.0, 0.1}) {
    const LoadShape shape = {.trace = file.path(), .length_scale = scale};
    LoadPlan plan = Make(shape);
    const auto requests = FirstOf(plan, 9);
    ASSERT_EQ(requests.size(), 3u);
    EXPECT_THAT((std::vector<double>{requests[0].arrival_s, requests[1].arrival_s, requests[2].arrival_s}),
                ElementsAre(0, 1, 2));
    EXPECT_EQ(requests[2].input, static_cast<int>(std::lround(1100 * scale)));
    // The second request is the third line of the trace. It shares one chunk with the first request.
    EXPECT_NEAR(CommonTokens(Tokens(plan, requests[0]), Tokens(plan, requests[1])), 512 * scale, 2);
    EXPECT_EQ(CommonTokens(Tokens(plan, requests[0]), Tokens(plan, requests[2])), requests[0].input);
  }
}

TEST(LoadPlanTest, ARateReplacesThatOfATrace) {
  const TraceFile file(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.0,40,4\n2023-11-16 18:15:50.0,9000,4\n"
      "2023-11-16 18:15:56.0,50,4\n");
  const LoadPlan plan = Make({.trace = file.path()});
  EXPECT_EQ(plan.num_left_out(), 1);
  EXPECT_EQ(plan.num_traced(), 2);
  EXPECT_EQ(FirstOf(Make({.trace = file.path()}), 5).back().arrival_s, 10);
  EXPECT_EQ(FirstOf(Make({.trace = file.path(), .rate = 4}), 5).back().arrival_s, 0.5);
}

TEST(LoadPlanTest, WhatDoesNotFitTheContextIsRefusedOrCut) {
  const auto refused = LoadPlan::Make({.input = *ParseLengths("60"), .output = *ParseLengths("1..50")}, 10, 100);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("up to 110 tokens (0 shared, 60 of its own prompt"));
  const LoadShape chats = {.input = *ParseLengths("lognormal:90"), .output = *ParseLengths("lognormal:90")};
  for (const PlannedRequest& request : FirstOf(Make(chats, 100), 200)) EXPECT_LE(request.input + request.output, 100);
  const TraceFile file("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.0,400,4\n");
  const auto none = LoadPlan::Make({.trace = file.path()}, 10, 100);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("none of the 1 requests of "));
  EXPECT_FALSE(LoadPlan::Make({.trace = "/nonexistent"}, 10, 100).ok());
}

}  // namespace
}  // namespace quire
