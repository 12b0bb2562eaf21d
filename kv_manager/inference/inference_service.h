// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_INFERENCE_INFERENCE_SERVICE_H_
#define QUIRE_KV_MANAGER_INFERENCE_INFERENCE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/rpc/received_call.h"
#include "quire/v1/inference.pb.h"
#include "security/caller.h"

namespace quire {

// InferenceService over the engine of a RequestEnvironment. The handlers never wait: the threads of the environment
// tokenize long texts and make output. Thread-safe: gRPC calls the handlers from many threads. The server must be shut
// down before the service is destroyed.
class InferenceServiceImpl : public ReceivingService {
 public:
  // `environment` is borrowed.
  explicit InferenceServiceImpl(RequestEnvironment* environment);

 private:
  // The caller, and whether it still waits for the answer.
  struct Asker {
    std::optional<Caller> caller;
    std::function<bool()> has_left;
  };

  // Adds a unary method: it reads the request and answers with what `handle` makes of it. `num_bytes` tells how much
  // text work the request has, which decides where `handle` runs.
  template <typename Request, typename Response>
  void AddAnswer(const char* name, RpcMethod method, size_t (*num_bytes)(const Request&),
                 absl::Status (InferenceServiceImpl::*handle)(const Asker&, const Request&, Response*) const);

  // Adds Embed, which answers when the engine has the embeddings.
  void AddEmbed();

  absl::Status DoTokenize(const Asker& asker, const v1::TokenizeRequest& request, v1::TokenizeResponse* response) const;
  absl::Status DoDetokenize(const Asker& asker, const v1::DetokenizeRequest& request,
                            v1::DetokenizeResponse* response) const;
  absl::Status DoRenderChat(const Asker& asker, const v1::RenderChatRequest& request,
                            v1::RenderChatResponse* response) const;
  absl::Status DoGetModel(const Asker& asker, const v1::GetModelRequest& request, v1::GetModelResponse* response) const;
  absl::Status DoAbort(const Asker& asker, const v1::AbortRequest& request, v1::AbortResponse* response) const;

  RequestEnvironment* const environment_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_INFERENCE_SERVICE_H_
