// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "nlohmann/json.hpp"
#include "tests/test_paths.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/plan_builder.h"
#include "tests/worker/test_worker.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

using Vector = std::vector<float>;

v1::RowSampling Pooled(v1::PoolingKind kind) {
  v1::RowSampling sampling = Greedy();
  sampling.set_pooling(kind);
  return sampling;
}

constexpr v1::PoolingKind kKinds[] = {v1::POOLING_KIND_LAST_TOKEN, v1::POOLING_KIND_MEAN, v1::POOLING_KIND_FIRST_TOKEN};

v1::StepResult RunOrDie(TestWorker* worker, const PlanBuilder& builder) {
  absl::StatusOr<v1::StepResult> result = worker->Run(builder.plan());
  QUIRE_CHECK(result.ok()) << result.status();
  return *std::move(result);
}

Vector EmbeddingsOf(const v1::StepResult& result) {
  return Vector(result.embeddings().begin(), result.embeddings().end());
}

// Returns the embedding of a prompt that is computed in these chunks, in a session of its own. Only the last step has
// one.
Vector Embed(TestWorker* worker, const std::vector<TokenId>& prompt, v1::PoolingKind kind,
             std::vector<int> chunks = {}) {
  worker->executor().Reset();
  const int length = static_cast<int>(prompt.size());
  if (chunks.empty()) chunks.push_back(length);
  Vector embedding;
  uint64_t step = 0;
  int position = 0;
  for (const int chunk : chunks) {
    QUIRE_CHECK(embedding.empty());
    PlanBuilder builder(++step);
    if (position == 0) builder.Start(0, prompt, Pooled(kind));
    const auto table = position == 0 ? Blocks(0, worker->limits().NumBlocksFor(length)) : Blocks(0, 0);
    builder.Slice(0, position, chunk, position + chunk == length, table);
    const v1::StepResult result = RunOrDie(worker, builder);
    EXPECT_THAT(result.token_ids(), SizeIs(0));
    embedding = EmbeddingsOf(result);
    position += chunk;
  }
  return embedding;
}

double Cosine(const Vector& a, const Vector& b) {
  QUIRE_CHECK_EQ(a.size(), b.size());
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    dot += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return dot / std::sqrt(aa * bb);
}

// Compares bits, or, on a GPU, which may compute chunks with other kernels, directions.
void ExpectSame(TestWorker& worker, const Vector& actual, const Vector& expected) {
  if (worker.device() == nullptr && !worker.backend().IsAsynchronous()) {
    EXPECT_EQ(actual, expected);
  } else {
    EXPECT_GT(Cosine(actual, expected), 0.9999);
  }
}

TEST(EmbeddingTest, AnEmbeddingIsThatOfHuggingFace) {
  const auto golden = nlohmann::json::parse(ReadWholeFile(SourcePath("tests/golden/embeddings/hidden_states.json")));
  ASSERT_GE(golden.size(), 8u);
  for (const auto& [name, vectors] : golden.items()) {
    TestWorker worker({.model = name});
    const auto prompts = nlohmann::json::parse(ReadWholeFile(GoldenModel(name) + "/golden.json"))["prompts"];
    ASSERT_EQ(prompts.size(), vectors.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto prompt = prompts[i].get<std::vector<TokenId>>();
      const int half = static_cast<int>(prompt.size()) / 2;
      for (size_t k = 0; k < std::size(kKinds); ++k) {
        const auto expected = vectors[i][std::initializer_list<const char*>{"last", "mean", "first"}.begin()[k]];
        const Vector actual = Embed(&worker, prompt, kKinds[k], {half, static_cast<int>(prompt.size()) - half});
        EXPECT_GT(Cosine(actual, expected.get<Vector>()), 0.9999) << name << " prompt " << i << " kind " << kKinds[k];
      }
    }
  }
}

TEST(EmbeddingTest, ChunksChangeNothing) {
  TestWorker worker;
  const std::vector<TokenId> prompt = Tokens(10, 17);
  for (const v1::PoolingKind kind : kKinds) {
    const Vector whole = Embed(&worker, prompt, kind);
    EXPECT_THAT(whole, SizeIs(worker.model().config.hidden_size));
    ExpectSame(worker, Embed(&worker, prompt, kind, {1, 16}), whole);
    ExpectSame(worker, Embed(&worker, prompt, kind, {5, 5, 5, 2}), whole);
  }
}

TEST(EmbeddingTest, KindsDiffer) {
  TestWorker worker;
  const std::vector<TokenId> prompt = Tokens(10, 9);
  EXPECT_NE(Embed(&worker, prompt, v1::POOLING_KIND_LAST_TOKEN), Embed(&worker, prompt, v1::POOLING_KIND_MEAN));
  EXPECT_NE(Embed(&worker, prompt, v1::POOLING_KIND_LAST_TOKEN), Embed(&worker, prompt, v1::POOLING_KIND_FIRST_TOKEN));
  // The first token sees nothing of the others.
  ExpectSame(worker, Embed(&worker, prompt, v1::POOLING_KIND_FIRST_TOKEN),
             Embed(&worker, {10}, v1::POOLING_KIND_LAST_TOKEN));
}

TEST(EmbeddingTest, AStepHasEmbeddingsBesideTokens) {
  TestWorker worker;
  const Vector last = Embed(&worker, Tokens(10, 6), v1::POOLING_KIND_LAST_TOKEN);
  const Vector mean = Embed(&worker, Tokens(30, 5), v1::POOLING_KIND_MEAN);
  worker.executor().Reset();
  const v1::StepResult alone = RunOrDie(&worker, PlanBuilder(1).Start(1, Tokens(50, 7)).Slice(1, 0, 7, true, {0, 1}));
  worker.executor().Reset();
  const v1::StepResult result = RunOrDie(&worker, PlanBuilder(1)
                                                      .Start(0, Tokens(10, 6), Pooled(v1::POOLING_KIND_LAST_TOKEN))
                                                      .Start(1, Tokens(50, 7))
                                                      .Start(2, Tokens(30, 5), Pooled(v1::POOLING_KIND_MEAN))
                                                      .Slice(0, 0, 6, true, {0, 1})
                                                      .Slice(1, 0, 7, true, {2, 3})
                                                      .Slice(2, 0, 5, true, {4, 5}));
  EXPECT_EQ(std::vector<uint32_t>(result.token_ids().begin(), result.token_ids().end()),
            std::vector<uint32_t>(alone.token_ids().begin(), alone.token_ids().end()));
  const Vector embeddings = EmbeddingsOf(result);
  ASSERT_THAT(embeddings, SizeIs(last.size() + mean.size()));
  const auto middle = embeddings.begin() + static_cast<ptrdiff_t>(last.size());
  ExpectSame(worker, Vector(embeddings.begin(), middle), last);
  ExpectSame(worker, Vector(middle, embeddings.end()), mean);
}

TEST(EmbeddingTest, AStartForgetsWhatWasPooled) {
  TestWorker worker;
  const Vector expected = Embed(&worker, Tokens(10, 6), v1::POOLING_KIND_MEAN);
  worker.executor().Reset();
  const v1::RowSampling mean = Pooled(v1::POOLING_KIND_MEAN);
  RunOrDie(&worker, PlanBuilder(1).Start(0, Tokens(10, 6), mean).Slice(0, 0, 4, false, {0, 1}));
  const v1::StepResult result =
      RunOrDie(&worker, PlanBuilder(2).Start(0, Tokens(10, 6), mean).Slice(0, 0, 6, true, {0, 1}));
  ExpectSame(worker, EmbeddingsOf(result), expected);
}

TEST(EmbeddingTest, OnlyTheLastTokenMayFollowCachedTokens) {
  TestWorker worker;
  const Vector expected = Embed(&worker, Tokens(10, 6), v1::POOLING_KIND_LAST_TOKEN);
  // The blocks of the first four tokens are there.
  const v1::StepResult result = RunOrDie(
      &worker,
      PlanBuilder(2).Start(1, Tokens(10, 6), Pooled(v1::POOLING_KIND_LAST_TOKEN)).Slice(1, 4, 2, true, {0, 1}));
  ExpectSame(worker, EmbeddingsOf(result), expected);
  for (const v1::PoolingKind kind : {v1::POOLING_KIND_MEAN, v1::POOLING_KIND_FIRST_TOKEN}) {
    Embed(&worker, Tokens(10, 6), v1::POOLING_KIND_LAST_TOKEN);
    const absl::Status refused =
        worker.Run(PlanBuilder(2).Start(1, Tokens(10, 6), Pooled(kind)).Slice(1, 4, 2, true, {0, 1}).plan()).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("slice 0 has the positions 4 to 6, its row pools all tokens"));
  }
}

TEST(EmbeddingTest, APooledRowHasNothingElse) {
  TestWorker worker;
  const auto refusal = [&worker](const v1::RowSampling& sampling, int prompt_length = -1) {
    worker.executor().Reset();
    const PlanBuilder builder =
        PlanBuilder(1).Start(0, Tokens(10, 6), sampling, prompt_length).Slice(0, 0, 6, true, {0, 1});
    return std::string(worker.Run(builder.plan()).status().message());
  };
  v1::RowSampling sampling = Pooled(v1::POOLING_KIND_LAST_TOKEN);
  EXPECT_EQ(refusal(sampling), "");
  EXPECT_THAT(refusal(sampling, 5), HasSubstr("prompt_length must be the number of tokens, 6, and not 5"));
  sampling.set_num_candidates(2);
  EXPECT_THAT(refusal(sampling), HasSubstr("starts[0].sampling.pooling is set, so candidates, logprobs and a guide"));
  sampling = Pooled(v1::POOLING_KIND_MEAN);
  sampling.set_num_prompt_logprobs_plus_one(1);
  EXPECT_THAT(refusal(sampling), HasSubstr("so candidates, logprobs and a guide must not be"));
  EXPECT_THAT(refusal(Pooled(static_cast<v1::PoolingKind>(4))), HasSubstr("sampling.pooling is 4, the limit is 3"));
  worker.executor().Reset();
  RunOrDie(&worker,
           PlanBuilder(1).Start(0, Tokens(10, 6), Pooled(v1::POOLING_KIND_MEAN)).Slice(0, 0, 4, false, {0, 1}));
  const absl::Status fork = worker.Run(PlanBuilder(2).Fork(1, 0).Slice(1, 4, 2, true).plan()).status();
  EXPECT_THAT(std::string(fork.message()), HasSubstr("fork_parents[0] is 0, which has a pooling"));
}

TEST(EmbeddingTest, ARowWithInfiniteHiddenStatesFailsAlone) {
  TestWorker worker;
  worker.backend().SpoilLogits();
  RunOrDie(&worker,
           PlanBuilder(1).Start(0, Tokens(10, 6), Pooled(v1::POOLING_KIND_MEAN)).Slice(0, 0, 4, false, {0, 1}));
  worker.backend().SpoilLogits(false);
  const v1::StepResult result = RunOrDie(&worker, PlanBuilder(2)
                                                      .Start(1, Tokens(30, 5), Pooled(v1::POOLING_KIND_LAST_TOKEN))
                                                      .Slice(0, 4, 2, true)
                                                      .Slice(1, 0, 5, true, {2, 3}));
  ASSERT_THAT(result.failures(), SizeIs(1));
  EXPECT_EQ(result.failures(0).slice(), 0u);
  EXPECT_EQ(result.failures(0).reason(), v1::SEQUENCE_FAILURE_REASON_LOGITS_NOT_FINITE);
  EXPECT_EQ(result.failures(0).message(), "the pooled hidden states are not finite");
  EXPECT_THAT(result.embeddings(), SizeIs(worker.model().config.hidden_size));
}

}  // namespace
}  // namespace quire
