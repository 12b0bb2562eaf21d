#ifndef QUIRE_KV_MANAGER_INFERENCE_GENERATE_CALL_H_
#define QUIRE_KV_MANAGER_INFERENCE_GENERATE_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "kv_manager/inference/call_canceller.h"
#include "kv_manager/requests/client_request.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/requests/token_stream.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// One call of Generate: a ClientRequest that has the call to itself. The call owns itself until gRPC is done with it.
// ClientRequest and gRPC call it from their threads; the writes are one at a time.
class GenerateCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                     public ResponseWriter,
                     public std::enable_shared_from_this<GenerateCall> {
 public:
  static std::shared_ptr<GenerateCall> New(RequestEnvironment* environment, grpc::CallbackServerContext* context,
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
  GenerateCall(RequestEnvironment* environment, grpc::CallbackServerContext* context, v1::GenerateRequest request);

  // Called before the first response, and not for a call without responses: gRPC itself may retry a call only as long
  // as nothing was sent, initial metadata included.
  void AddInitialMetadata();

  RequestEnvironment* const environment_;
  grpc::CallbackServerContext* const context_;
  CallCanceller canceller_;
  ClientRequest request_;
  std::shared_ptr<GenerateCall> self_;  // Until OnDone.

  bool has_initial_metadata_ = false;     // Used by the write under way.
  std::atomic<bool> is_limited_ = false;  // The alarm is set.
  grpc::Alarm write_alarm_;
  grpc::ByteBuffer write_;  // The response that is being written.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_GENERATE_CALL_H_
