// SPDX-License-Identifier: Apache-2.0

// Runs the worker with --quantize and with --kv-type=int8.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"

namespace quire {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

// Stories that the models have not seen, of the kinds that they were trained on. The first is one of
// tools/story_model/stories.py for a seed that was not used in training.
constexpr char kDrumStory[] =
    "This is the story of a lively girl named Emma, who lived on the top floor of an old house. One afternoon, "
    "Emma heard an old librarian play the drum. \"I want to learn that!\" she said. Emma tried to play it, but it "
    "sounded like falling pots. Everyone covered their ears. \"Please stop!\" they called.\n\nEmma was close to "
    "tears. \"I will never be able to play,\" she said. But her good friend Luna said, \"I like it. Play it "
    "again.\" Emma played in the morning and Emma played in the evening. Week after week went by. One warm "
    "morning, a bird sat down to listen. Then another one came, and another.\n\nOne evening, there was a party in "
    "the library, but the musicians did not come. \"Emma, could you play?\" asked her aunt. Emma began to play, "
    "and it was like a hundred happy feet. When the song was over, everyone clapped, and the old librarian clapped "
    "the loudest. And the birds? They came back and sang along. When the moon came up, everyone was happy and "
    "tired.";
constexpr char kBoatStory[] =
    "Once upon a time, there was a little boy named Tom. Tom had a small red boat that he liked very much. Every day "
    "he went to the pond with his mom to play. One day, the wind was strong and the boat went far away. Tom was sad. "
    "He wanted to get his boat back, but the water was too cold. A big dog came and saw that Tom was sad. \"Do not "
    "cry,\" said the dog. \"I can swim. I will help you.\" The dog jumped into the water and swam to the boat. He took "
    "it in his mouth and brought it back to Tom. Tom was very happy. He hugged the dog and said, \"Thank you! You are "
    "my friend.\" His mom smiled and gave the dog a bone. From that day on, Tom and the dog played together at the "
    "pond. They ran in the grass, looked at the birds, and ate apples under the old tree. When it was time to go home, "
    "the dog went with them. Tom had a new friend, and they all lived happily in the little house near the pond.";

struct Scored {
  double perplexity;
  std::string numerics;          // Of the model as the manager serves it.
  std::vector<double> logprobs;  // Of the tokens of the text, from the second on.
};

Scored Score(const std::string& model, const char* text, const std::vector<std::string>& worker_flags) {
  Cluster cluster({.model = model, .worker_flags = worker_flags});
  v1::GenerateRequest request = GreedyRequest(text, 1);
  request.set_prompt_logprobs(1);
  const Generation generation = Generate(cluster.client(), request);
  EXPECT_TRUE(generation.status.ok()) << generation.status;
  Scored scored;
  double sum = 0;
  for (const v1::PositionLogprobs& entry : generation.prompt_logprobs) {
    if (!entry.has_chosen()) continue;  // The first token follows nothing.
    scored.logprobs.push_back(entry.chosen().logprob());
    sum += scored.logprobs.back();
  }
  EXPECT_GT(scored.logprobs.size(), 150u);
  scored.perplexity = std::exp(-sum / static_cast<double>(scored.logprobs.size()));
  const auto info = cluster.client().GetModel();
  EXPECT_TRUE(info.ok()) << info.status();
  if (info.ok()) scored.numerics = info->numerics_fingerprint();
  return scored;
}

void ExpectInt8Near(const std::string& model, const char* text) {
  const Scored exact = Score(model, text, {}), int8 = Score(model, text, {"--quantize=int8"});
  std::printf("perplexity %.4f, with int8 %.4f (%+.2f %%)\n", exact.perplexity, int8.perplexity,
              100 * (int8.perplexity / exact.perplexity - 1));
  EXPECT_NE(int8.perplexity, exact.perplexity) << "nothing was rounded";
  EXPECT_LT(int8.perplexity, 1.005 * exact.perplexity);
  EXPECT_THAT(int8.numerics, HasSubstr("/int8 1/"));
  EXPECT_THAT(exact.numerics, Not(HasSubstr("int8")));

  const Scored output = Score(model, text, {"--quantize-output"});
  const Scored all = Score(model, text, {"--quantize=int8", "--quantize-output"});
  std::printf("with an output matrix of int8 %.4f (%+.2f %%), with all of int8 %.4f (%+.2f %%)\n", output.perplexity,
              100 * (output.perplexity / exact.perplexity - 1), all.perplexity,
              100 * (all.perplexity / exact.perplexity - 1));
  EXPECT_NE(output.perplexity, exact.perplexity) << "nothing was rounded";
  EXPECT_NE(all.perplexity, int8.perplexity) << "the output matrix was not rounded";
  EXPECT_LT(all.perplexity, 1.005 * exact.perplexity);
  EXPECT_THAT(output.numerics, AllOf(HasSubstr("/output-int8 1/"), Not(HasSubstr("/int8"))));
  EXPECT_THAT(all.numerics, HasSubstr("/int8 1/output-int8 1/"));
}

// Weights of 4 bits lose more, and how much depends on the model, so the limits are wide.
void ExpectInt4Works(const std::string& model, const char* text) {
  const Scored exact = Score(model, text, {}), rounded = Score(model, text, {"--quantize=int4"});
  const Scored float32 = Score(model, text, {"--quantize=int4", "--int4-inputs=float32"});
  std::printf("perplexity %.4f, with int4 %.4f (%+.2f %%), with inputs in float32 %.4f (%+.2f %%)\n", exact.perplexity,
              rounded.perplexity, 100 * (rounded.perplexity / exact.perplexity - 1), float32.perplexity,
              100 * (float32.perplexity / exact.perplexity - 1));
  EXPECT_LT(rounded.perplexity, 1.2 * exact.perplexity);
  EXPECT_LT(rounded.perplexity, 1.02 * float32.perplexity);
  EXPECT_NE(rounded.perplexity, float32.perplexity);
  EXPECT_THAT(rounded.numerics, HasSubstr("/int4 1/"));
  EXPECT_THAT(float32.numerics, HasSubstr("/int4-float32 1/"));
}

void PrintDifference(const char* name, const Scored& exact, const Scored& other) {
  double largest = 0, sum = 0;
  ASSERT_EQ(exact.logprobs.size(), other.logprobs.size());
  for (size_t i = 0; i < exact.logprobs.size(); ++i) {
    const double difference = std::abs(other.logprobs[i] - exact.logprobs[i]);
    largest = std::max(largest, difference);
    sum += difference;
  }
  std::printf("K and V of %s: perplexity %.4f (%+.3f %%), logprobs differ by %.5f on average, by %.5f at most\n", name,
              other.perplexity, 100 * (other.perplexity / exact.perplexity - 1),
              sum / static_cast<double>(exact.logprobs.size()), largest);
}

void ExpectInt8KvNear(const std::string& model, const char* text) {
  const Scored exact = Score(model, text, {"--kv-type=float32"}), rounded = Score(model, text, {"--kv-type=int8"});
  PrintDifference("float32", exact, exact);
  PrintDifference("bfloat16", exact, Score(model, text, {"--kv-type=bfloat16"}));
  PrintDifference("int8", exact, rounded);
  EXPECT_NE(rounded.perplexity, exact.perplexity) << "nothing was rounded";
  EXPECT_LT(rounded.perplexity, 1.005 * exact.perplexity);
  EXPECT_THAT(rounded.numerics, EndsWith("/kv-int8 1"));
  EXPECT_THAT(exact.numerics, Not(HasSubstr("int8")));
}

TEST(QuantizeTest, Int8KeepsThePerplexityOfTheBundledModel) {
  ExpectInt8Near(BundledModel(), kDrumStory);
}

TEST(QuantizeTest, Int8KeepsThePerplexityOfThePublicStoryModel) {
  if (Stories260k().empty()) GTEST_SKIP() << "the model is not there";
  ExpectInt8Near(Stories260k(), kBoatStory);
}

TEST(QuantizeTest, Int4LosesLittleOfTheBundledModel) {
  ExpectInt4Works(BundledModel(), kDrumStory);
}

TEST(QuantizeTest, Int4LosesLittleOfThePublicStoryModel) {
  if (Stories260k().empty()) GTEST_SKIP() << "the model is not there";
  ExpectInt4Works(Stories260k(), kBoatStory);
}

TEST(QuantizeTest, Int8KvKeepsThePerplexityOfTheBundledModel) {
  ExpectInt8KvNear(BundledModel(), kDrumStory);
}

TEST(QuantizeTest, Int8KvKeepsThePerplexityOfThePublicStoryModel) {
  if (Stories260k().empty()) GTEST_SKIP() << "the model is not there";
  ExpectInt8KvNear(Stories260k(), kBoatStory);
}

}  // namespace
}  // namespace quire
