#ifndef QUIRE_KV_MANAGER_INFERENCE_INFERENCE_SERVICE_H_
#define QUIRE_KV_MANAGER_INFERENCE_INFERENCE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "kv_manager/requests/request_environment.h"
#include "quire/v1/inference.grpc.pb.h"
#include "security/caller.h"

namespace quire {

// gRPC hands over requests and responses as bytes, see message_bytes.h.
using RawInferenceService = v1::InferenceService::WithRawCallbackMethod_Generate<
    v1::InferenceService::WithRawCallbackMethod_GenerateBatch<v1::InferenceService::WithRawCallbackMethod_Tokenize<
        v1::InferenceService::WithRawCallbackMethod_Detokenize<v1::InferenceService::WithRawCallbackMethod_GetModel<
            v1::InferenceService::WithRawCallbackMethod_Abort<v1::InferenceService::Service>>>>>>;

// InferenceService over the engine of a RequestEnvironment. The handlers never wait: the threads of the environment
// tokenize long texts and make output. Thread-safe: gRPC calls the handlers from many threads. The server must be shut
// down before the service is destroyed.
class InferenceServiceImpl : public RawInferenceService {
 public:
  // `environment` is borrowed.
  explicit InferenceServiceImpl(RequestEnvironment* environment) : environment_(environment) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* GenerateBatch(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;

 private:
  // A unary call: reads the request and answers with what `handle` makes of it. `num_bytes` tells how much text work
  // the request has, which decides where `handle` runs.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Answer(RpcMethod method, grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer& request_bytes, grpc::ByteBuffer* response_bytes,
                                   size_t (*num_bytes)(const Request&),
                                   absl::Status (InferenceServiceImpl::*handle)(const std::optional<Caller>&,
                                                                                const Request&, Response*) const);

  absl::Status DoTokenize(const std::optional<Caller>& caller, const v1::TokenizeRequest& request,
                          v1::TokenizeResponse* response) const;
  absl::Status DoDetokenize(const std::optional<Caller>& caller, const v1::DetokenizeRequest& request,
                            v1::DetokenizeResponse* response) const;
  absl::Status DoGetModel(const std::optional<Caller>& caller, const v1::GetModelRequest& request,
                          v1::GetModelResponse* response) const;
  absl::Status DoAbort(const std::optional<Caller>& caller, const v1::AbortRequest& request,
                       v1::AbortResponse* response) const;

  RequestEnvironment* const environment_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_INFERENCE_SERVICE_H_
