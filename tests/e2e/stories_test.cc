// SPDX-License-Identifier: Apache-2.0

// Runs a public model, which we did not train, through manager and worker.

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/quirectl.h"
#include "tests/security/certificates.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr char kBeginning[] =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, "
    "red ball. She wanted to play with it, but it was too high.";

TEST(StoriesTest, GreedyFromNothingTellsOfLilyThroughTokenizerJson) {
  if (Stories260k().empty()) GTEST_SKIP() << "the model is not there";
  Cluster cluster({.model = Stories260k()});
  const Generation story = Generate(cluster.client(), GreedyRequest("", 100));
  ASSERT_TRUE(story.status.ok()) << story.status;
  EXPECT_THAT(story.text, testing::StartsWith(kBeginning));
  EXPECT_EQ(story.token_ids.size(), 100u);
  EXPECT_EQ(story.last.usage().prompt_tokens(), 1u);
}

TEST(StoriesTest, GreedyFromNothingTellsOfLilyThroughTokenizerModel) {
  if (Stories260k().empty()) GTEST_SKIP() << "the model is not there";
  const TemporaryDirectory directory;
  for (const auto& entry : fs::directory_iterator(Stories260k())) {
    const std::string name = entry.path().filename().string();
    if (name != "tokenizer.json") fs::copy(entry.path(), directory / name);
  }
  Cluster cluster({.model = directory / ""});
  const Generation story = Generate(cluster.client(), GreedyRequest("", 100));
  ASSERT_TRUE(story.status.ok()) << story.status;
  EXPECT_THAT(story.text, testing::StartsWith(kBeginning));
}

TEST(StoriesTest, TheBundledModelTellsAStoryAndEndsIt) {
  Cluster cluster({.model = BundledModel()});
  v1::GenerateRequest request = GreedyRequest("Once upon a time", 400);
  request.set_echo(true);
  const Generation story = Generate(cluster.client(), request);
  ASSERT_TRUE(story.status.ok()) << story.status;
  EXPECT_THAT(story.text, testing::StartsWith("Once upon a time"));
  EXPECT_EQ(story.last.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_GT(story.token_ids.size(), 30u);
}

// At temperature 0, which generation_config.json asks for, two seeds give the same story.
TEST(StoriesTest, GenerationConfigGivesTheDefaultsOfRequests) {
  const TemporaryDirectory directory;
  for (const auto& entry : fs::directory_iterator(BundledModel())) {
    const std::string name = entry.path().filename().string();
    if (name != "generation_config.json") fs::copy(entry.path(), directory / name);
  }
  ReplaceFile(directory / "generation_config.json", R"({"eos_token_id": 1, "temperature": 0, "max_new_tokens": 25})");
  for (const bool is_used : {true, false}) {
    Cluster cluster({.model = directory / "",
                     .manager_flags = {is_used ? "--generation-config=model" : "--generation-config=none"}});
    std::vector<Generation> stories;
    for (const uint64_t seed : {1, 2}) {
      v1::GenerateRequest request;
      request.set_text("Once upon a time");
      request.mutable_sampling()->set_seed(seed);
      request.mutable_stopping()->set_ignore_eos(true);
      stories.push_back(Generate(cluster.client(), request));
      ASSERT_TRUE(stories.back().status.ok()) << stories.back().status;
      EXPECT_EQ(stories.back().token_ids.size(), is_used ? 25u : 16u);
    }
    EXPECT_EQ(stories[0].token_ids == stories[1].token_ids, is_used);
    const Ended model = Quirectl(cluster.endpoint(), {"model"});
    EXPECT_EQ(model.output.find("defaults      temperature 0, max_tokens 25") != std::string::npos, is_used)
        << model.output;
  }
}

}  // namespace
}  // namespace quire
