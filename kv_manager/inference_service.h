#ifndef QUIRE_KV_MANAGER_INFERENCE_SERVICE_H_
#define QUIRE_KV_MANAGER_INFERENCE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "kv_manager/engine.h"
#include "kv_manager/generate_call.h"
#include "kv_manager/random_source.h"
#include "kv_manager/request_registry.h"
#include "kv_manager/request_validation.h"
#include "kv_manager/thread_pool.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire {

struct InferenceServiceOptions {
  RequestLimits limits;
  size_t max_requests = 4096;       // Calls of Generate at the same time.
  size_t max_outbox_tokens = 4096;  // Tokens that wait for one slow reader before its request is ended.
  // How long a client may take to read what is under way when generation has ended, before its call is cancelled.
  absl::Duration last_write_timeout = absl::Seconds(30);
  size_t max_waiting_texts = 64;  // Long texts that wait to be tokenized.
  int num_input_threads = 2;      // Tokenize long texts.
  int num_output_threads = 2;     // Make the text of generated tokens.
};

// InferenceService over an engine. Handlers never wait: long texts are tokenized, and output is made, on threads of the
// service. Thread-safe: gRPC calls the handlers from many threads. The server must be shut down before the service is
// destroyed.
class InferenceServiceImpl : public v1::InferenceService::CallbackService {
 public:
  // `engine` and `clock` are borrowed; `clock` is that of Request::deadline_us.
  InferenceServiceImpl(Engine* engine, const InferenceServiceOptions& options, const Clock* clock = &SteadyClock());

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context, const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override;

 private:
  // Runs `job` on the spot when `num_bytes` are few, else on an input thread; RESOURCE_EXHAUSTED when too many wait.
  absl::Status RunOnText(size_t num_bytes, std::function<void()> job);

  absl::Status DoTokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response) const;
  absl::Status DoDetokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse* response) const;
  absl::Status DoGetModel(v1::GetModelResponse* response) const;
  absl::Status DoAbort(const v1::AbortRequest& request) const;

  const InferenceServiceOptions options_;
  RandomSource random_;
  RequestRegistry registry_;
  GenerateEnvironment environment_;
  ThreadPool output_threads_;
  ThreadPool input_threads_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_SERVICE_H_
