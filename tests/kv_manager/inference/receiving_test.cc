// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/process_usage.h"
#include "kv_manager/inference/inference_service.h"
#include "serving/grpc_server.h"
#include "tests/kv_manager/inference/service_harness.h"
#include "tests/serving/half_sent_message.h"

// Tests what happens to messages that do not arrive, at a real port.

namespace quire {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr char kGenerate[] = "/quire.v1.InferenceService/Generate";
constexpr char kGenerateBatch[] = "/quire.v1.InferenceService/GenerateBatch";
constexpr char kTokenize[] = "/quire.v1.InferenceService/Tokenize";

class ReceivingTest : public ::testing::Test {
 protected:
  void Start(const ReceiveLimits& limits) {
    InferenceServiceOptions options;
    options.receive_limits = limits;
    environment_ = std::make_unique<RequestEnvironment>(&engine_, options);
    service_ = std::make_unique<InferenceServiceImpl>(environment_.get());
    auto server = GrpcServer::Start(
        "127.0.0.1:0", grpc::InsecureServerCredentials(),
        {.max_message_bytes = 16 * kMiB, .max_streams_per_connection = 1024, .min_ping_interval_ms = 1000},
        {{v1::InferenceService::service_full_name(), service_.get()}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    environment_->receiving.CountBytesWith(
        [server = server_.get()](const std::string& peer) { return server->ReceivedBytes(peer); });
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    stub_ = v1::InferenceService::NewStub(channel_);
  }

  void TearDown() override { server_->Shutdown(absl::ZeroDuration()); }

  int port() const { return std::stoi(server_->address().substr(server_->address().rfind(':') + 1)); }

  // Begins a call of `method`, lets `use` write, and returns the status of the call.
  grpc::Status Call(const char* method_name,
                    const std::function<void(grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>*)>& use) {
    grpc::ClientContext context;
    grpc::internal::RpcMethod method(method_name, grpc::internal::RpcMethod::BIDI_STREAMING);
    const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(channel_.get(), method,
                                                                                              &context));
    use(stream.get());
    return stream->Finish();
  }

  FakeEngine engine_{ToyModel()};
  std::unique_ptr<RequestEnvironment> environment_;
  std::unique_ptr<InferenceServiceImpl> service_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

// 40 clients send all but the last bytes of a message of 16 MiB, while another client reads tokens.
TEST_F(ReceivingTest, HalfSentMessagesHoldLittleMemoryAndHarmNobodyElse) {
  Start({.max_bytes = 64 * kMiB, .max_connection_bytes = 32 * kMiB});
  engine_.Hold();
  grpc::ClientContext context;
  v1::GenerateRequest request;
  request.set_text("a");
  request.mutable_stopping()->set_max_tokens(40);
  request.mutable_stopping()->set_ignore_eos(true);
  const auto reader = stub_->Generate(&context, request);
  engine_.WaitForRequests(1);

  const int64_t before = ReadProcessUsage().resident_bytes;
  int64_t most = 0;
  std::vector<std::unique_ptr<HalfSentMessage>> messages;
  for (int i = 0; i < 40; ++i) {
    messages.push_back(std::make_unique<HalfSentMessage>(port(), 16 * kMiB - 100, i % 2 == 0 ? kGenerate : kTokenize));
    messages.back()->SendAllBut(1000);
    most = std::max(most, ReadProcessUsage().resident_bytes - before);
    engine_.Step();
    v1::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response)) << i;
  }
  EXPECT_LT(most / kMiB, 450) << "the address sanitizer keeps 256 MiB of freed memory";
  // The end may come in a response of its own, and there is no status before all responses have been read.
  for (v1::GenerateResponse response; reader->Read(&response);) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  int64_t sent = 0;
  for (const auto& message : messages) sent += message->sent();
  EXPECT_GT(sent / kMiB, 550) << "the clients do not send what this test is about";
}

// gRPC looks at the size of a message when it has arrived.
TEST_F(ReceivingTest, AMessageThatIsMuchTooLargeEndsBeforeItHasArrived) {
  Start({});
  for (const char* method : {kGenerate, kTokenize, kGenerateBatch}) {
    HalfSentMessage message(port(), 2000 * kMiB, method);
    message.SendAllBut(0);
    EXPECT_TRUE(message.has_ended()) << method;
    EXPECT_LT(message.sent() / kMiB, 900) << method;
  }
}

TEST_F(ReceivingTest, ARequestThatDoesNotArriveEndsTheCall) {
  Start({.timeout = absl::Milliseconds(50)});
  for (const char* method : {kGenerate, kTokenize}) {
    const grpc::Status status = Call(method, [](auto* /*stream*/) {});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << method;
    EXPECT_EQ(status.error_message(), "the request has not arrived completely within 50ms (--receive-timeout)");
    EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "RECEIVE_TIMEOUT");
  }
}

TEST_F(ReceivingTest, ACallWithoutARequestIsWrong) {
  Start({});
  for (const char* method : {kGenerate, kTokenize}) {
    const grpc::Status status = Call(method, [](auto* stream) { stream->WritesDone(); });
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(status.error_message(), "the call has no request");
  }
}

TEST_F(ReceivingTest, AMessageThatIsTooLargeAndHasArrivedIsRefused) {
  Start({});
  v1::TokenizeRequest request;
  request.set_text(std::string(16 * kMiB + 1, 'a'));
  grpc::ClientContext context;
  v1::TokenizeResponse response;
  const grpc::Status status = stub_->Tokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
}

}  // namespace
}  // namespace quire
