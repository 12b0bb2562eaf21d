#ifndef QUIRE_KV_MANAGER_INFERENCE_INFERENCE_SERVICE_H_
#define QUIRE_KV_MANAGER_INFERENCE_INFERENCE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/thread_pool.h"
#include "kv_manager/engine/engine.h"
#include "kv_manager/requests/client_request.h"
#include "kv_manager/requests/inference_options.h"
#include "kv_manager/requests/random_source.h"
#include "kv_manager/requests/request_registry.h"
#include "kv_manager/requests/rpc_counts.h"
#include "kv_manager/requests/unread_requests.h"
#include "quire/v1/inference.grpc.pb.h"
#include "security/token_file.h"

namespace quire {

// Requests and responses are bytes, see message_bytes.h.
using RawInferenceService = v1::InferenceService::WithRawCallbackMethod_Generate<
    v1::InferenceService::WithRawCallbackMethod_GenerateBatch<v1::InferenceService::WithRawCallbackMethod_Tokenize<
        v1::InferenceService::WithRawCallbackMethod_Detokenize<v1::InferenceService::WithRawCallbackMethod_GetModel<
            v1::InferenceService::WithRawCallbackMethod_Abort<v1::InferenceService::Service>>>>>>;

// InferenceService over an engine. Handlers never wait: long texts are tokenized, and output is made, on threads of the
// service. Thread-safe: gRPC calls the handlers from many threads. The server must be shut down before the service is
// destroyed.
class InferenceServiceImpl : public RawInferenceService {
 public:
  // `engine` and `clock` are borrowed; `clock` is that of Request::deadline_us.
  InferenceServiceImpl(Engine* engine, const InferenceServiceOptions& options, const Clock* clock = &SteadyClock());

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

  // Of the calls that have ended.
  const RpcCounts& counts() const { return counts_; }

  // Waits until the clients have the ends of the requests that the engine took. False at the timeout.
  bool WaitForReaders(absl::Duration timeout) { return unread_.WaitForNone(timeout); }

  // For services beside this one:

  // Who calls; nothing when callers need no token.
  std::optional<Caller> CallerOf(const grpc::ServerContextBase& context) const;

  // The caller's request that runs under this name, or whose last response is not read yet. An operator finds
  // anybody's. NOT_FOUND when there is none, FAILED_PRECONDITION when an operator's name is that of several.
  absl::StatusOr<RequestId> FindRequest(const std::optional<Caller>& caller, const std::string& name) const;

  // The names under which requests run, or have just run.
  absl::flat_hash_map<RequestId, std::string> RequestNames() const { return registry_.Names(); }

  // Runs `job` on the spot when `num_bytes` are few, else on an input thread; RESOURCE_EXHAUSTED when too many wait.
  absl::Status RunOnText(size_t num_bytes, std::function<void()> job);

  const RequestLimits& limits() const { return options_.limits; }

 private:
  // A call other than Generate: reads the request, gives it to `handle` where `num_bytes` of work in it say, and
  // answers.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Answer(RpcMethod method, grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer& request_bytes, grpc::ByteBuffer* response_bytes,
                                   size_t (*num_bytes)(const Request&),
                                   absl::Status (InferenceServiceImpl::*handle)(const std::optional<Caller>&,
                                                                                const Request&, Response*) const);

  absl::StatusOr<std::shared_ptr<TokenStream>> FindStream(const std::optional<Caller>& caller,
                                                          const std::string& name) const;
  absl::Status DoTokenize(const std::optional<Caller>& caller, const v1::TokenizeRequest& request,
                          v1::TokenizeResponse* response) const;
  absl::Status DoDetokenize(const std::optional<Caller>& caller, const v1::DetokenizeRequest& request,
                            v1::DetokenizeResponse* response) const;
  absl::Status DoGetModel(const std::optional<Caller>& caller, const v1::GetModelRequest& request,
                          v1::GetModelResponse* response) const;
  absl::Status DoAbort(const std::optional<Caller>& caller, const v1::AbortRequest& request,
                       v1::AbortResponse* response) const;

  const InferenceServiceOptions options_;
  RpcCounts counts_;
  RandomSource random_;
  RequestRegistry registry_;
  UnreadRequests unread_;
  GenerateEnvironment environment_;
  ThreadPool output_threads_;
  ThreadPool input_threads_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_INFERENCE_SERVICE_H_
