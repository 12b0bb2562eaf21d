// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tests/kv_manager/inference/batch_client.h"
#include "tests/kv_manager/inference/service_harness.h"

// Tests that the memory of answers which clients do not read is limited, for each kind of call.

namespace quire {
namespace {

// An answer to this is larger than AnswerWatch::kSmallBytes.
const std::string& LongText() {
  static const auto& text = *new std::string(20000, 'a');
  return text;
}

std::shared_ptr<ServedModel> ModelForLongTexts() {
  std::shared_ptr<ServedModel> model = ToyModel();
  model->max_context_tokens = 30000;
  return model;
}

InferenceServiceOptions NoMemory() {
  InferenceServiceOptions options;
  options.receive_limits.max_bytes = 0;
  return options;
}

v1::GenerateRequest LongEcho() {
  v1::GenerateRequest request;
  request.set_text(LongText());
  request.set_echo(true);
  request.mutable_stopping()->set_max_tokens(5);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// Returns how a call of Tokenize ends whose client waits before it reads the answer.
grpc::StatusCode TokenizeAndWait(ServiceHarness* harness, std::chrono::milliseconds wait) {
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  v1::TokenizeRequest request;
  request.set_text(LongText());
  const auto reader = harness->stub->AsyncTokenize(&context, request, &queue);
  std::this_thread::sleep_for(wait);
  v1::TokenizeResponse response;
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  reader->Finish(&response, &status, &status);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  return status.error_code();
}

// Nothing tells the client when its call was cancelled, except the read of the answer. So it waits longer each time.
TEST(UnreadAnswersTest, UnaryCallIsCancelled) {
  ServiceHarness harness(ModelForLongTexts(), NoMemory());
  grpc::StatusCode code = grpc::StatusCode::OK;
  for (int wait_ms = 1; wait_ms < 20000 && code == grpc::StatusCode::OK; wait_ms *= 2) {
    code = TokenizeAndWait(&harness, std::chrono::milliseconds(wait_ms));
  }
  EXPECT_EQ(code, grpc::StatusCode::CANCELLED);
}

TEST(UnreadAnswersTest, UnaryCallOfAClientThatReadsIsNot) {
  ServiceHarness harness(ModelForLongTexts());
  EXPECT_EQ(TokenizeAndWait(&harness, std::chrono::milliseconds(1)), grpc::StatusCode::OK);
}

TEST(UnreadAnswersTest, StreamIsCancelledWithItsRequest) {
  ServiceHarness harness(ModelForLongTexts(), NoMemory());
  harness.engine.Hold();
  grpc::ClientContext context;
  const auto reader = harness.stub->Generate(&context, LongEcho());
  harness.engine.WaitForRequests(1);
  harness.engine.Step();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.WaitUntilIdle();
}

TEST(UnreadAnswersTest, BatchIsCancelledWithItsRequests) {
  ServiceHarness harness(ModelForLongTexts(), NoMemory());
  harness.engine.Hold();
  BatchClient batch(&harness);
  batch.Start(1, LongEcho());
  harness.engine.WaitForRequests(1);
  harness.engine.Step();
  EXPECT_EQ(batch.stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.WaitUntilIdle();
}

TEST(UnreadAnswersTest, TextThatIsTooLongForAMessageIsNotMade) {
  ServiceHarness harness(ToyModel({std::string(1000, 'x')}), {.max_message_bytes = 10000});
  v1::DetokenizeRequest request;
  for (int i = 0; i < 100; ++i) request.add_token_ids(258);
  grpc::ClientContext context;
  v1::DetokenizeResponse response;
  const grpc::Status status = harness.stub->Detokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "the response has 11003 bytes or more, the limit is 10000 (--max-message-bytes)");
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "RESPONSE_TOO_LARGE");
}

}  // namespace
}  // namespace quire
