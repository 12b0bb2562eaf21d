// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/embed_call.h"

#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Read = std::variant<EmbedCall, ApiError>(const Json& body, UnknownFields unknown);

EmbedCall Call(Read* read, const std::string& body) {
  return std::get<EmbedCall>(read(*ParseBody(body), UnknownFields::kRefuse));
}

std::string Error(Read* read, const std::string& body) {
  return std::get<ApiError>(read(*ParseBody(body), UnknownFields::kRefuse)).message;
}

v1::Embedding EmbeddingOf(const std::vector<float>& values, uint32_t num_tokens = 2) {
  v1::Embedding embedding;
  embedding.mutable_values()->Add(values.begin(), values.end());
  embedding.set_prompt_tokens(num_tokens);
  return embedding;
}

// Returns the body of the answer with these embeddings.
std::string Body(const EmbedCall& call, const std::vector<v1::Embedding>& embeddings) {
  EmbedAnswer answer{.id = "7", .model = "m", .created_unix_sec = 5, .embeddings = {}};
  for (const v1::Embedding& embedding : embeddings) answer.embeddings.push_back(&embedding);
  const std::string body = call.body(answer);
  const size_t size = embeddings.empty() ? 0 : static_cast<size_t>(embeddings[0].values_size());
  EXPECT_LE(body.size(), call.AnswerBytes(size));
  return body;
}

TEST(EmbedCallTest, AnInputIsATextOrTokensOrAListOfThese) {
  EmbedCall call = Call(&ReadEmbeddingsCall, R"({"input": "x", "model": "m"})");
  EXPECT_EQ(call.model, "m");
  ASSERT_THAT(call.inputs, SizeIs(1));
  EXPECT_EQ(call.inputs[0].text(), "x");
  EXPECT_THAT(call.input_names, ElementsAre("input"));
  call = Call(&ReadEmbeddingsCall, R"({"input": [3, 4]})");
  ASSERT_THAT(call.inputs, SizeIs(1));
  EXPECT_THAT(call.inputs[0].token_ids().ids(), ElementsAre(3, 4));
  call = Call(&ReadEmbeddingsCall, R"({"input": ["x", [3]]})");
  ASSERT_THAT(call.inputs, SizeIs(2));
  EXPECT_EQ(call.inputs[0].text(), "x");
  EXPECT_THAT(call.inputs[1].token_ids().ids(), ElementsAre(3));
  EXPECT_THAT(call.input_names, ElementsAre("input[0]", "input[1]"));
}

TEST(EmbedCallTest, FieldsBecomeThoseOfTheManager) {
  const EmbedCall call = Call(&ReadEmbeddingsCall, R"({"input": "x", "dimensions": 8, "normalize": false, "user": "u",
      "add_special_tokens": false, "priority": -2, "cache_salt": "s", "encoding_format": "base64"})");
  EXPECT_EQ(call.common.dimensions(), 8u);
  EXPECT_TRUE(call.common.has_normalize() && !call.common.normalize());
  EXPECT_TRUE(call.common.has_add_special_tokens() && !call.common.add_special_tokens());
  EXPECT_EQ(call.common.priority(), -2);
  EXPECT_EQ(call.common.cache_salt(), "s");
  const char* const both = R"({"input": "x", "normalize": true, "use_activation": true})";
  EXPECT_TRUE(Call(&ReadEmbeddingsCall, both).common.normalize());
}

TEST(EmbedCallTest, WrongFieldsAreRefusedByName) {
  EXPECT_EQ(Error(&ReadEmbeddingsCall, "{}"), "input is missing");
  EXPECT_EQ(Error(&ReadEmbeddingsCall, R"({"input": 5})"), "input is 5, it must be a text or a list of token ids");
  EXPECT_EQ(Error(&ReadEmbeddingsCall, R"({"input": []})"), "input is empty");
  EXPECT_THAT(Error(&ReadEmbeddingsCall, R"({"input": "x", "normalize": true, "use_activation": false})"),
              testing::StartsWith("use_activation differs from normalize"));
  EXPECT_EQ(Error(&ReadEmbeddingsCall, R"({"input": ["x", []]})"),
            "input[1] is empty, it must be a text or a list of token ids");
  EXPECT_EQ(Error(&ReadEmbeddingsCall, R"({"input": [[1], [1, -1]]})"),
            "input[1][1] is -1, it must be a token id, a whole number from 0 to 4294967295");
  EXPECT_EQ(Error(&ReadEmbeddingsCall, R"({"input": "x", "encoding_format": "int8"})"),
            "encoding_format is \"int8\", it must be \"float\" or \"base64\"");
  EXPECT_THAT(Error(&ReadEmbeddingsCall, R"({"input": "x", "dimensions": 0})"), HasSubstr("dimensions"));
  EXPECT_EQ(Error(&ReadEmbeddingsCall, R"({"input": "x", "truncate_prompt_tokens": 5})"),
            "truncate_prompt_tokens is 5, which is not supported: texts are not cut here; send at most as many tokens "
            "as the model's context");
  EXPECT_EQ(Error(&ReadEmbeddingsCall, R"({"input": "x", "y": 1})"), "y is not known to this server");
  EXPECT_EQ(Error(&ReadRerankCall, R"({"documents": ["x"]})"), "query is missing");
  EXPECT_EQ(Error(&ReadRerankCall, R"({"query": "x", "documents": ["x", 7]})"), "documents[1] is 7, it must be a text");
  EXPECT_EQ(Error(&ReadRerankCall, R"({"query": "x", "documents": [{"text": 7}]})"),
            "documents[0].text is 7, it must be a text");
  EXPECT_EQ(Error(&ReadRerankCall, R"({"query": "x", "documents": [{"title": "x"}]})"), "documents[0].text is missing");
  EXPECT_EQ(Error(&ReadScoreCall, R"({"text_1": ["a", "b"], "text_2": "c"})"),
            "text_1 has 2 texts, and text_2 has 1; text_1 must have one text or as many as text_2");
}

TEST(EmbedCallTest, TheAnswerIsThatOfOpenai) {
  const EmbedCall call = Call(&ReadEmbeddingsCall, R"({"input": ["x", "y"]})");
  EXPECT_EQ(Body(call, {EmbeddingOf({0.5f, -1e-38f}, 3), EmbeddingOf({0.1f, 3e38f}, 4)}),
            R"({"id":"embd-7","object":"list","created":5,"model":"m","data":[)"
            R"({"object":"embedding","index":0,"embedding":[0.5,-1e-38]},)"
            R"({"object":"embedding","index":1,"embedding":[0.1,3e+38]}],)"
            R"("usage":{"prompt_tokens":7,"total_tokens":7}})");
}

TEST(EmbedCallTest, Base64HasLittleEndianFloats) {
  const EmbedCall call = Call(&ReadEmbeddingsCall, R"({"input": "x", "encoding_format": "base64"})");
  // 1 is 0x3f800000 and -2 is 0xc0000000.
  EXPECT_THAT(Body(call, {EmbeddingOf({1, -2})}), HasSubstr(R"("embedding":"AACAPwAAAMA="})"));
}

TEST(EmbedCallTest, DocumentsAreOrderedByTheirCosines) {
  const std::vector<v1::Embedding> embeddings = {EmbeddingOf({1, 0}), EmbeddingOf({0, 1}), EmbeddingOf({0.6f, 0.8f}),
                                                 EmbeddingOf({0, 1})};
  EmbedCall call = Call(&ReadRerankCall, R"({"query": "q", "documents": ["a", {"text": "b\n"}, "c"], "top_n": 2})");
  EXPECT_TRUE(call.common.normalize());
  EXPECT_THAT(call.input_names, ElementsAre("query", "documents[0]", "documents[1]", "documents[2]"));
  EXPECT_EQ(Body(call, embeddings),
            R"({"id":"rerank-7","model":"m","usage":{"prompt_tokens":8,"total_tokens":8},"results":[)"
            R"({"index":1,"relevance_score":0.6000000238418579,"document":{"text":"b\n"}},)"
            R"({"index":0,"relevance_score":0,"document":{"text":"a"}}]})");
  call = Call(&ReadRerankCall, R"({"query": "q", "documents": ["a", "b", "c"], "return_documents": false})");
  EXPECT_THAT(Body(call, embeddings),
              HasSubstr(R"({"index":0,"relevance_score":0},{"index":2,"relevance_score":0}]})"));
}

TEST(EmbedCallTest, ScoresAreThoseOfPairs) {
  EmbedCall call = Call(&ReadScoreCall, R"({"text_1": "q", "text_2": ["a", "b"]})");
  const std::vector<v1::Embedding> three = {EmbeddingOf({1, 0}), EmbeddingOf({0.5f, 0}), EmbeddingOf({-1, 0})};
  EXPECT_EQ(Body(call, three), R"({"id":"score-7","object":"list","created":5,"model":"m","data":[)"
                               R"({"index":0,"object":"score","score":0.5},{"index":1,"object":"score","score":-1}],)"
                               R"("usage":{"prompt_tokens":6,"total_tokens":6}})");
  call = Call(&ReadScoreCall, R"({"text_1": ["p", "q"], "text_2": ["a", "b"]})");
  EXPECT_THAT(call.input_names, ElementsAre("text_1[0]", "text_1[1]", "text_2[0]", "text_2[1]"));
  const std::vector<v1::Embedding> four = {EmbeddingOf({1, 0}), EmbeddingOf({0, 1}), EmbeddingOf({0.25f, 0}),
                                           EmbeddingOf({0, 0.5f})};
  EXPECT_THAT(Body(call, four), HasSubstr(R"("score":0.25},{"index":1,"object":"score","score":0.5}])"));
}

TEST(EmbedCallTest, ErrorsOfTheManagerNameTheInputOfTheClient) {
  google::rpc::Status status;
  status.set_code(3);
  google::rpc::BadRequest bad_request;
  auto* const violation = bad_request.add_field_violations();
  violation->set_field("inputs[1].text");
  violation->set_description("has 300 tokens, the model's context is 128");
  auto* const other = bad_request.add_field_violations();
  other->set_field("inputs[0].token_ids.ids[4]");
  other->set_description("is 300, the vocabulary has 258 tokens");
  status.add_details()->PackFrom(bad_request);
  ApiNames names;
  names.inputs = {"query", "documents[7]"};
  const ApiError error = ToApiError(status, names);
  EXPECT_EQ(error.message,
            "documents[7] has 300 tokens, the model's context is 128; query[4] is 300, the vocabulary "
            "has 258 tokens");
  EXPECT_EQ(error.param, "documents[7]");
  EXPECT_EQ(error.code, "context_length_exceeded");
}

}  // namespace
}  // namespace quire
