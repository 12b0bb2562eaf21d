#ifndef QUIRE_KV_MANAGER_INFERENCE_GENERATE_CALL_H_
#define QUIRE_KV_MANAGER_INFERENCE_GENERATE_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kv_manager/inference/call_canceller.h"
#include "kv_manager/requests/client_request.h"
#include "kv_manager/requests/token_stream.h"
#include "quire/v1/inference.pb.h"
#include "security/authorizer.h"

namespace quire {

// One call of Generate: a ClientRequest that has the call to itself. It owns itself until gRPC is done with it.
class GenerateCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                     public ResponseWriter,
                     public std::enable_shared_from_this<GenerateCall> {
 public:
  static std::shared_ptr<GenerateCall> New(GenerateEnvironment* environment, grpc::CallbackServerContext* context,
                                           v1::GenerateRequest request);

  // Validates and submits the request, or ends the call. May tokenize a long text. Called once, on any thread.
  void Start();

  // Ends the call instead of Start.
  void Refuse(const absl::Status& status);

  // ResponseWriter.
  void WriteResponse(const v1::GenerateResponse* response) override;
  void LimitWrite() override;
  void EndCall(const v1::GenerateResponse* response, const absl::Status& status) override;

  // From gRPC.
  void OnWriteDone(bool ok) override { request_.OnWritten(ok); }
  void OnCancel() override { request_.Cancel(); }
  void OnDone() override {
    canceller_.OnDone();
    self_.reset();
  }

 private:
  GenerateCall(GenerateEnvironment* environment, grpc::CallbackServerContext* context, v1::GenerateRequest request)
      : environment_(environment),
        context_(context),
        canceller_(context),
        request_(environment, CallerOf(*context, environment->tokens), TraceParentOf(*context), std::move(request),
                 this, [threads = environment->output_threads](auto job) { threads->Schedule(std::move(job)); }) {}

  // Before the first response only: what is sent without one must stay a call that gRPC may try again by itself.
  void AddInitialMetadata();

  GenerateEnvironment* const environment_;
  grpc::CallbackServerContext* const context_;
  CallCanceller canceller_;
  ClientRequest request_;
  std::shared_ptr<GenerateCall> self_;  // Until OnDone.

  bool has_initial_metadata_ = false;     // Used by whoever writes.
  std::atomic<bool> is_limited_ = false;  // The alarm is set.
  grpc::Alarm write_alarm_;
  grpc::ByteBuffer write_;  // The response that is written.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_GENERATE_CALL_H_
