// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/reranker.h"

#include <cmath>
#include <limits>
#include <variant>

#include "gateway/openai/score_answer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

const Reranker kReranker{.prefix = {1, 2}, .suffix = {3}, .yes = 10, .no = 20};

GenerateCall CallFor(const char* body) {
  EmbedCall call = std::get<EmbedCall>(ReadRerankCall(*ParseBody(body)));
  return RerankCall(std::move(call), std::make_shared<const Reranker>(kReranker));
}

v1::GenerateResponse ResponseWith(uint32_t token, float logprob, uint32_t prompt_tokens = 0) {
  v1::GenerateResponse response;
  auto* const chosen = response.add_logprobs()->mutable_chosen();
  chosen->set_token_id(token);
  chosen->set_logprob(logprob);
  if (prompt_tokens > 0) response.mutable_usage()->set_prompt_tokens(prompt_tokens);
  return response;
}

TEST(RerankerTest, APairIsTheTextOfTheModelCardWithoutSpecialTokens) {
  GenerateCall call = CallFor(R"({"query": "q", "documents": ["a", "b<|im_end|>"], "priority": 3, "cache_salt": "s"})");
  v1::TokenizeRequest text = call.rerank->PairText(1);
  EXPECT_EQ(text.text(),
            "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
            "<Query>: q\n<Document>: b<|im_end|>");
  EXPECT_TRUE(text.has_add_special_tokens() && !text.add_special_tokens());
  EXPECT_TRUE(text.has_parse_special_tokens() && !text.parse_special_tokens());
  v1::TokenizeResponse tokens;
  tokens.add_token_ids(7);
  EXPECT_THAT(call.rerank->PromptOf(tokens).ids(), ElementsAre(1, 2, 7, 3));
  call = CallFor(R"({"query": "q", "documents": ["a"], "instruction": "do"})");
  EXPECT_EQ(call.rerank->PairText(0).text(), "<Instruct>: do\n<Query>: q\n<Document>: a");
}

TEST(RerankerTest, EachRequestFindsTheLogprobsOfBothAnswers) {
  const GenerateCall call = CallFor(R"({"query": "q", "documents": ["a", "b"], "priority": 3, "cache_salt": "s"})");
  ASSERT_THAT(call.requests, SizeIs(2));
  EXPECT_THAT(call.names.inputs, ElementsAre("documents[0]", "documents[1]"));
  const v1::GenerateRequest& request = call.requests[1];
  EXPECT_THAT(request.sampling().allowed_token_ids(), ElementsAre(10, 20));
  EXPECT_EQ(request.beam().width(), 2u);
  EXPECT_EQ(request.beam().num_return_sequences(), 2u);
  EXPECT_EQ(request.stopping().max_tokens(), 1u);
  EXPECT_EQ(request.priority(), 3);
  EXPECT_EQ(request.cache_salt(), "s");
}

TEST(ScoreAnswerTest, TheScoreIsTheProbabilityOfYesAmongBoth) {
  const GenerateCall call = CallFor(R"({"query": "q", "documents": ["a", "b", "c"], "return_documents": false})");
  ScoreAnswer answer(call, {.id = "7", .created_unix_sec = 5, .model = "m"});
  answer.Add(1, ResponseWith(20, std::log(0.1f)));
  answer.Add(0, ResponseWith(10, std::log(0.2f)));
  answer.Add(1, ResponseWith(10, std::log(0.3f), 5));
  answer.Add(0, ResponseWith(20, std::log(0.2f), 6));
  answer.Add(2, ResponseWith(20, 0, 1));  // The other answer is impossible.
  const Json body = Json::parse(answer.Body());
  EXPECT_EQ(body["id"], "rerank-7");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 12);
  ASSERT_EQ(body["results"].size(), 3u);
  EXPECT_EQ(body["results"][0]["index"], 1);
  EXPECT_NEAR(body["results"][0]["relevance_score"].get<double>(), 0.75, 1e-6);
  EXPECT_NEAR(body["results"][1]["relevance_score"].get<double>(), 0.5, 1e-6);
  EXPECT_EQ(body["results"][2]["relevance_score"], 0);
}

}  // namespace
}  // namespace quire
