// Runs a public model, which we did not train, through manager and worker.

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
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

}  // namespace
}  // namespace quire
