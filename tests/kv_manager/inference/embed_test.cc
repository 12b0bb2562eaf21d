// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "kv_manager/requests/embed_run.h"
#include "tests/kv_manager/inference/service_harness.h"

// Calls of Embed through gRPC. FakeEngine says what its embeddings are.

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr float kA = static_cast<float>(ToyTokenizer::Byte('a'));

v1::EmbedRequest Texts(const std::vector<std::string>& texts) {
  v1::EmbedRequest request;
  for (const std::string& text : texts) request.add_inputs()->set_text(text);
  return request;
}

struct Embedded {
  grpc::Status status;
  v1::EmbedResponse response;

  std::vector<float> values(int index) const {
    const auto& values = response.embeddings(index).values();
    return {values.begin(), values.end()};
  }
};

Embedded Embed(ServiceHarness* harness, const v1::EmbedRequest& request) {
  Embedded result;
  grpc::ClientContext context;
  result.status = harness->stub->Embed(&context, request, &result.response);
  return result;
}

// Returns the field and the description of the only violation.
std::string Violation(const grpc::Status& status) {
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  const auto details = Detail<google::rpc::BadRequest>(status);
  if (details.field_violations_size() != 1) return status.error_message();
  return details.field_violations(0).field() + ": " + details.field_violations(0).description();
}

TEST(EmbedTest, EachInputGetsItsEmbeddingWithTheTokensThatTheTokenizerAdds) {
  ServiceHarness harness(ToyModel());
  v1::EmbedRequest request = Texts({"aa"});
  request.add_inputs()->mutable_token_ids()->add_ids(7);
  Embedded result = Embed(&harness, request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  ASSERT_THAT(result.response.embeddings(), SizeIs(2));
  EXPECT_THAT(result.values(0), ElementsAre(3, ToyTokenizer::kBos, kA, -1));
  EXPECT_THAT(result.values(1), ElementsAre(1, 7, 7, -1));
  EXPECT_EQ(result.response.embeddings(0).prompt_tokens(), 3u);
  request.set_add_special_tokens(false);
  EXPECT_THAT(Embed(&harness, request).values(0), ElementsAre(2, kA, kA, -1));
  EXPECT_EQ(harness.counts().count(RpcMethod::kEmbed, absl::StatusCode::kOk), 2);
}

TEST(EmbedTest, RequestsOfTheEngineWantOnlyTheEmbedding) {
  ServiceHarness harness(ToyModel());
  v1::EmbedRequest request = Texts({"a"});
  request.set_priority(3);
  request.set_cache_salt("salt");
  request.set_tenant("red");
  request.set_bypass_prefix_cache(true);
  ASSERT_TRUE(Embed(&harness, request).status.ok());
  const std::vector<Request> requests = harness.engine.requests();
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_EQ(requests[0].sampling.pooling, Pooling::kLastToken);
  EXPECT_TRUE(requests[0].is_prompt_only);
  EXPECT_EQ(requests[0].max_tokens, 1);
  EXPECT_THAT(requests[0].stop_token_ids, IsEmpty());
  EXPECT_EQ(requests[0].priority, 3);
  EXPECT_EQ(requests[0].cache_salt, "salt");
  EXPECT_EQ(requests[0].tenant, "red");
  EXPECT_TRUE(requests[0].bypass_prefix_cache);
}

TEST(EmbedTest, ManyInputsComeInOrderAndFewAtATime) {
  ServiceHarness harness(ToyModel());
  harness.engine.takes_newest_first = true;
  v1::EmbedRequest request;
  for (uint32_t i = 0; i < 600; ++i) request.add_inputs()->mutable_token_ids()->add_ids(i % 100);
  const Embedded result = Embed(&harness, request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  ASSERT_THAT(result.response.embeddings(), SizeIs(600));
  for (int i = 0; i < 600; ++i) EXPECT_EQ(result.values(i)[1], i % 100) << i;
  EXPECT_LE(harness.engine.most_running(), EmbedRun::kMaxInEngine);
}

TEST(EmbedTest, AnEngineWithLessRoomGetsFewerInputsAtATime) {
  ServiceHarness harness(ToyModel());
  harness.engine.max_running = 3;
  const Embedded result = Embed(&harness, Texts(std::vector<std::string>(50, "a")));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_THAT(result.response.embeddings(), SizeIs(50));
  EXPECT_EQ(harness.engine.most_running(), 3u);
  harness.engine.max_running = 0;
  EXPECT_EQ(Embed(&harness, Texts({"a"})).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(EmbedTest, ValuesAreCutAndThenNormalized) {
  ServiceHarness harness(ToyModel());
  v1::EmbedRequest request;
  request.add_inputs()->mutable_token_ids()->add_ids(4);
  request.mutable_inputs(0)->mutable_token_ids()->add_ids(9);
  request.mutable_inputs(0)->mutable_token_ids()->add_ids(5);
  request.set_dimensions(2);
  EXPECT_THAT(Embed(&harness, request).values(0), ElementsAre(3, 4));
  request.set_normalize(true);
  EXPECT_THAT(Embed(&harness, request).values(0), ElementsAre(0.6f, 0.8f));
  const std::shared_ptr<ServedModel> model = ToyModel();
  model->pooling.normalizes = true;
  ServiceHarness normalizing(model);
  request.clear_normalize();
  EXPECT_THAT(Embed(&normalizing, request).values(0), ElementsAre(0.6f, 0.8f));
  request.set_normalize(false);
  EXPECT_THAT(Embed(&normalizing, request).values(0), ElementsAre(3, 4));
}

TEST(EmbedTest, WrongFieldsAreNamedWithTheirInput) {
  ServiceHarness harness(ToyModel(), {.max_batch_requests = 3});
  EXPECT_EQ(Violation(Embed(&harness, {}).status), "inputs: has no entry, at least one is needed");
  EXPECT_EQ(Violation(Embed(&harness, Texts({"a", "a", "a", "a"})).status),
            "inputs: has 4 entries, at most 3 are allowed (--max-batch-requests)");
  v1::EmbedRequest request = Texts({"a", std::string(200, 'a')});
  EXPECT_EQ(Violation(Embed(&harness, request).status), "inputs[1].text: has 201 tokens, the model's context is 128");
  request = Texts({"a"});
  request.add_inputs()->mutable_token_ids()->add_ids(300);
  EXPECT_EQ(Violation(Embed(&harness, request).status),
            "inputs[1].token_ids.ids[0]: is 300, the vocabulary has 258 tokens");
  request = Texts({"a"});
  request.add_inputs();
  EXPECT_EQ(Violation(Embed(&harness, request).status), "inputs[1]: has neither text nor token_ids");
  request = Texts({"a"});
  request.set_dimensions(5);
  EXPECT_EQ(Violation(Embed(&harness, request).status), "dimensions: is 5, the embeddings of the model have 4 values");
  request.set_dimensions(0);
  EXPECT_EQ(Violation(Embed(&harness, request).status), "dimensions: is 0, the embeddings of the model have 4 values");
  request = Texts({"a"});
  request.set_tenant("no spaces");
  EXPECT_THAT(Violation(Embed(&harness, request).status), HasSubstr("tenant: is"));
}

TEST(EmbedTest, APromptMayFillTheContext) {
  ServiceHarness harness(ToyModel());
  EXPECT_EQ(Embed(&harness, Texts({std::string(127, 'a')})).response.embeddings(0).prompt_tokens(), 128u);
}

TEST(EmbedTest, AnAnswerThatWouldBeTooLargeIsRefusedBeforeAnyWork) {
  ServiceHarness harness(ToyModel(), {.max_message_bytes = 100});
  EXPECT_EQ(Violation(Embed(&harness, Texts({"a", "a", "a"})).status),
            "inputs: has 3 entries, whose embeddings of 4 values would have 144 bytes, the limit is 100 "
            "(--max-message-bytes)");
  EXPECT_THAT(harness.engine.requests(), IsEmpty());
  EXPECT_TRUE(Embed(&harness, Texts({"a", "a"})).status.ok());
}

TEST(EmbedTest, AModelWithoutEmbeddingsSaysWhy) {
  const std::shared_ptr<ServedModel> model = ToyModel();
  model->pooling = {.refusal = "modules.json has no module of the type Pooling"};
  ServiceHarness harness(model);
  const grpc::Status status = Embed(&harness, Texts({"a"})).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "the model gives no embeddings: modules.json has no module of the type Pooling");
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "NO_EMBEDDINGS");
  const v1::GetModelResponse described = harness.GetModel();
  EXPECT_EQ(described.pooling().refusal(), "modules.json has no module of the type Pooling");
}

TEST(EmbedTest, AModelWithoutAnOutputMatrixOnlyEmbeds) {
  const std::shared_ptr<ServedModel> model = ToyModel();
  model->embeds_only = true;
  ServiceHarness harness(model);
  EXPECT_TRUE(Embed(&harness, Texts({"a"})).status.ok());
  v1::GenerateRequest request;
  request.set_text("a");
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(result.status).reason(), "EMBEDS_ONLY");
}

TEST(EmbedTest, GetModelDescribesTheEmbeddings) {
  ServiceHarness harness(ToyModel());
  const v1::GetModelResponse described = harness.GetModel();
  EXPECT_EQ(described.pooling().kind(), v1::POOLING_KIND_LAST_TOKEN);
  EXPECT_EQ(described.pooling().embedding_size(), 4u);
  EXPECT_FALSE(described.pooling().normalizes());
}

TEST(EmbedTest, OneFailureEndsTheCallWithTheNameOfTheInput) {
  ServiceHarness harness(ToyModel());
  harness.engine.failure = absl::UnavailableError("the worker is gone");
  EXPECT_THAT(Embed(&harness, Texts({"a", "b"})).status.error_message(), HasSubstr("]: the worker is gone"));
  const grpc::Status one = Embed(&harness, Texts({"a"})).status;
  EXPECT_EQ(one.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(one.error_message(), "the worker is gone");
}

TEST(EmbedTest, AClientThatLeavesEndsItsInputs) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  grpc::ClientContext context;
  grpc::Status status;
  std::thread call([&] {
    v1::EmbedResponse response;
    status = harness.stub->Embed(&context, Texts({"a", "b", "c"}), &response);
  });
  harness.engine.WaitForRequests(3);
  context.TryCancel();
  call.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.WaitUntilIdle();
  EXPECT_THAT(harness.engine.cancelled(), SizeIs(3));
}

TEST(EmbedTest, InputsOfAllCallsAreLimited) {
  ServiceHarness harness(ToyModel(), {.max_requests = 3});
  const grpc::Status status = Embed(&harness, Texts({"a", "b", "c", "d"})).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "TOO_MANY_REQUESTS");
  // Calls that have ended do not count.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Embed(&harness, Texts({"a", "b", "c"})).status.ok());
}

}  // namespace
}  // namespace quire
