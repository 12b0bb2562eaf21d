// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/scheduler/scheduler_fixture.h"

// Requests that want the embedding of their prompt.

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SchedulerEmbeddingTest : public SchedulerTest {
 protected:
  static Request Pooled(uint64_t id, int prompt_length, Pooling pooling) {
    Request request = MakeRequest(id, prompt_length, /*max_tokens=*/1);
    request.is_prompt_only = true;
    request.sampling.pooling = pooling;
    return request;
  }

  // The last step has ended the request with the embedding that it has alone.
  void ExpectEmbedded(const Request& request) {
    EXPECT_THAT(output_.embeddings, ElementsAre(Embedding{request.id, SoloRun(model_, request).embedding}));
    EXPECT_THAT(output_.finished, ElementsAre(Finished{request.id, 0, FinishReason::kLength, /*ends_request=*/true}));
  }
};

TEST_F(SchedulerEmbeddingTest, ARequestEndsWithTheStepThatEndsItsPrompt) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 4;
  for (const Pooling pooling : {Pooling::kLastToken, Pooling::kMean, Pooling::kFirstToken}) {
    Make(16, options);
    const Request request = Pooled(1, 6, pooling);
    Submit(request);
    EXPECT_EQ(Step(), "0:0+4");
    EXPECT_THAT(output_.embeddings, IsEmpty());
    EXPECT_EQ(Step(), "0:4+2*");
    ExpectEmbedded(request);
    EXPECT_EQ(Step(), "");
    EXPECT_EQ(blocks_->counts().used, 0);
    emitted_.clear();
  }
}

TEST_F(SchedulerEmbeddingTest, APlanThatRunsAheadHasNothingMoreOfIt) {
  SchedulerOptions options = Options();
  options.max_plans_in_flight = 2;
  Make(16, options);
  Submit(Pooled(1, 6, Pooling::kMean));
  Submit(2, 5, 3);
  EXPECT_EQ(Shape(Plan()), "0:0+6* 1:0+5*");
  EXPECT_EQ(Shape(Plan()), "1:5+1*");
  Commit();
  Commit();
  RunToTheEnd();
  EXPECT_EQ(Emitted(2), Solo(2));
}

TEST_F(SchedulerEmbeddingTest, OnlyThatOfTheLastTokenTakesCachedBlocks) {
  has_prefix_cache_ = true;
  Make(16);
  Submit(1, 9, 1);
  Step();
  const Request last = Pooled(2, 9, Pooling::kLastToken);
  Submit(last);
  EXPECT_EQ(Step(), "0:8+1*");
  ExpectEmbedded(last);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kFirstToken}) {
    const Request request = Pooled(2 + static_cast<uint64_t>(pooling), 9, pooling);
    Submit(request);
    EXPECT_EQ(Step(), "0:0+9*");
    ExpectEmbedded(request);
  }
}

TEST_F(SchedulerEmbeddingTest, APreemptedMeanBeginsAgainAndOthersAreSwapped) {
  for (const Pooling pooling : {Pooling::kLastToken, Pooling::kMean}) {
    SchedulerOptions options = Options();
    options.max_chunk_tokens = 4;
    Make(5, options);
    scheduler_.reset();
    blocks_ = std::make_unique<PagedBlockManager>(
        PagedBlockManagerOptions{.num_blocks = 5, .block_size = 4, .num_host_blocks = 8, .has_prefix_cache = false});
    scheduler_ = std::make_unique<Scheduler>(options, blocks_.get());
    worker_ = std::make_unique<ShadowWorker>(model_, 5, 4, num_rows_, 8);
    Submit(1, 4, 8);  // 11 slots, which are 3 blocks.
    const Request request = Pooled(2, 16, pooling);
    Submit(request);
    std::vector<Embedding> embeddings;
    for (int i = 0; i < 30; ++i) {
      Step();
      embeddings.insert(embeddings.end(), output_.embeddings.begin(), output_.embeddings.end());
      output_ = {};
    }
    EXPECT_EQ(scheduler_->counts().preemptions, 1);
    EXPECT_EQ(scheduler_->counts().swap_outs, pooling == Pooling::kMean ? 0 : 1);
    EXPECT_THAT(embeddings, ElementsAre(Embedding{request.id, SoloRun(model_, request).embedding}));
    EXPECT_EQ(Emitted(1), Solo(1));
    emitted_.clear();
  }
}

}  // namespace
}  // namespace quire
