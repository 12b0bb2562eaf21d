// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_INFERENCE_SERVICE_HARNESS_H_
#define QUIRE_TESTS_KV_MANAGER_INFERENCE_SERVICE_HARNESS_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kv_manager/inference/inference_service.h"
#include "quire/v1/inference.grpc.pb.h"
#include "tests/kv_manager/requests/fake_engine.h"
#include "tests/kv_manager/requests/toy_model.h"

namespace quire {

// An InferenceService over a FakeEngine, and a client of it in the same process, through real gRPC.
class ServiceHarness {
 public:
  // The outcome of a call of Generate.
  struct Result {
    std::vector<v1::GenerateResponse> responses;
    grpc::Status status;
    std::multimap<grpc::string_ref, grpc::string_ref> trailers;  // Views of the call's context, which `context` keeps.
    std::shared_ptr<grpc::ClientContext> context;

    std::string text() const {
      std::string text;
      for (const auto& response : responses) text += response.text_delta();
      return text;
    }
    std::vector<TokenId> tokens() const {
      std::vector<TokenId> tokens;
      for (const auto& response : responses) {
        tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
      }
      return tokens;
    }
    const v1::GenerateResponse& last() const { return responses.back(); }
  };

  explicit ServiceHarness(std::shared_ptr<const ServedModel> model, const InferenceServiceOptions& options = {})
      : engine(std::move(model)), environment_(&engine, options), service_(&environment_) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub = v1::InferenceService::NewStub(server_->InProcessChannel(grpc::ChannelArguments()));
  }
  ~ServiceHarness() { server_->Shutdown(std::chrono::system_clock::now()); }

  Result Generate(const v1::GenerateRequest& request) {
    Result result;
    result.context = std::make_shared<grpc::ClientContext>();
    auto reader = stub->Generate(result.context.get(), request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) result.responses.push_back(response);
    result.status = reader->Finish();
    result.trailers = result.context->GetServerTrailingMetadata();
    return result;
  }

  grpc::Status Abort(const std::string& request_id) {
    v1::AbortRequest request;
    request.set_request_id(request_id);
    grpc::ClientContext context;
    v1::AbortResponse response;
    return stub->Abort(&context, request, &response);
  }
  // Fails the test if there is no model.
  v1::GetModelResponse GetModel() {
    grpc::ClientContext context;
    v1::GetModelResponse response;
    const grpc::Status status = stub->GetModel(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  const RpcCounts& counts() const { return environment_.counts; }
  RequestRegistry& registry() { return environment_.registry; }
  ResumableRequests& resumable() { return environment_.resumable; }
  TextThreads& text_threads() { return environment_.text_threads; }
  // What calls charge for. Set before the first call.
  void ChargeWith(std::function<void(ClientWork)> charge) {
    environment_.charge = [charge = std::move(charge)](const std::string& /*peer*/, ClientWork work) { charge(work); };
  }
  // Whether the manager says that its workers may have requests which it does not know.
  void SetRestoring(bool is_restoring) {
    environment_.is_restoring = [is_restoring] { return is_restoring; };
  }

  FakeEngine engine;
  std::unique_ptr<v1::InferenceService::Stub> stub;

 private:
  RequestEnvironment environment_;
  InferenceServiceImpl service_;
  std::unique_ptr<grpc::Server> server_;
};

// Returns the status detail of one type. Fails the test if there is none.
template <typename Message>
Message Detail(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  Message message;
  for (const auto& any : details.details()) {
    if (any.Is<Message>() && any.UnpackTo(&message)) return message;
  }
  ADD_FAILURE() << "no " << Message::descriptor()->full_name() << " in " << details.ShortDebugString();
  return message;
}

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_INFERENCE_SERVICE_HARNESS_H_
