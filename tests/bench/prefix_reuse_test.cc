// SPDX-License-Identifier: Apache-2.0

#include "bench/prefix_reuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/prompts.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MooncakeTraceTest, EachHashIdStandsFor512Tokens) {
  const auto prompts = ParseMooncakeTrace(
      "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 7]}\n"
      "{\"timestamp\": 9, \"input_length\": 512, \"output_length\": 6, \"hash_ids\": [3]}\n");
  ASSERT_EQ(prompts.status(), absl::OkStatus());
  EXPECT_THAT(*prompts, ElementsAre(TracedPrompt{600, {0, 7}, 5, 0}, TracedPrompt{512, {3}, 6, 0.009}));
  const std::vector<TokenId> tokens = TokensOf(prompts->front());
  EXPECT_EQ(tokens.size(), 600u);
  EXPECT_EQ(tokens[511], 511);
  EXPECT_EQ(tokens[512], 7 * 512);
}

TEST(MooncakeTraceTest, BadLineIsNamed) {
  for (const char* line :
       {"{\"input_length\": 513, \"hash_ids\": [1]}", "{\"input_length\": 512, \"hash_ids\": [1, 2]}",
        "{\"input_length\": 512}", "[1", "{\"input_length\": 512, \"hash_ids\": [-1]}"}) {
    const auto prompts = ParseMooncakeTrace(line);
    EXPECT_EQ(prompts.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(prompts.status().message()), HasSubstr("line 1 is")) << line;
  }
}

// The second prompt shares the whole first chunk with the first prompt. It also shares 6 blocks of the second chunk,
// because the first prompt fills 6 full blocks of it.
TEST(FootprintTest, CountsWhatAnEarlierPromptHadInFullBlocks) {
  const CacheFootprint footprint = MeasureFootprint({{612, {0, 1}}, {1024, {0, 1}}}, /*block_size=*/16);
  EXPECT_EQ(footprint.num_tokens, 1636);
  EXPECT_EQ(footprint.num_hit_tokens, 512 + 96);
  EXPECT_EQ(footprint.num_blocks, 64);
  EXPECT_EQ(footprint.largest_prompt_blocks, 64);
}

TEST(FootprintTest, TheLastTokenIsNeverAHit) {
  EXPECT_EQ(MeasureFootprint({{512, {0}}, {512, {0}}}, 16).num_hit_tokens, 496);
}

class PrefixReuseTest : public ::testing::Test {
 protected:
  PrefixReuse WithShare(double share) const {
    return MeasurePrefixReuse(prompts_, static_cast<int>(share * static_cast<double>(footprint_.num_blocks)) + 1, 16);
  }

  const std::vector<TracedPrompt> prompts_ = DrawPrompts(300, /*seed=*/1);
  const CacheFootprint footprint_ = MeasureFootprint(prompts_, 16);
};

TEST_F(PrefixReuseTest, PoolOfFootprintSizeHitsAsOftenAsAnUnlimitedCache) {
  const PrefixReuse reuse = WithShare(1);
  EXPECT_EQ(reuse.num_hit_tokens, footprint_.num_hit_tokens);
  EXPECT_EQ(reuse.num_evictions, 0);
  EXPECT_GT(reuse.num_hit_tokens, footprint_.num_tokens / 10);
}

TEST_F(PrefixReuseTest, SmallerPoolsHitLess) {
  int64_t last = footprint_.num_hit_tokens + 1;
  for (const double share : {1.0, 0.5, 0.25, 0.1}) {
    const PrefixReuse reuse = WithShare(share);
    EXPECT_LT(reuse.num_hit_tokens, last) << share;
    EXPECT_GT(reuse.num_hit_tokens, 0) << share;
    EXPECT_EQ(reuse.num_too_long, 0) << share;
    last = reuse.num_hit_tokens;
  }
}

TEST_F(PrefixReuseTest, PromptsLargerThanThePoolAreSkippedAndNotCached) {
  const PrefixReuse reuse = MeasurePrefixReuse({{1024, {0, 1}}, {1024, {0, 1}}}, /*num_blocks=*/63, 16);
  EXPECT_EQ(reuse.num_too_long, 2);
  EXPECT_EQ(reuse.num_hit_tokens, 0);
}

}  // namespace
}  // namespace quire
