// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_INFERENCE_STREAM_CALL_H_
#define QUIRE_KV_MANAGER_INFERENCE_STREAM_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kv_manager/requests/client_request.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/requests/rpc_counts.h"
#include "kv_manager/requests/token_stream.h"
#include "kv_manager/rpc/call_canceller.h"
#include "kv_manager/rpc/grpc_status.h"
#include "kv_manager/rpc/received_call.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// One call of Generate or Resume: a ClientRequest that has the call to itself. The call owns itself until gRPC is done
// with it. ClientRequest and gRPC call it from their threads; the writes are one at a time.
class StreamCall : public ReceivedCall, public ResponseWriter, public std::enable_shared_from_this<StreamCall> {
 public:
  // Begins to receive the request. `method` is kGenerate or kResume.
  static StreamCall* New(RequestEnvironment* environment, RpcMethod method, grpc::CallbackServerContext* context);

  // ResponseWriter.
  void WriteResponse(const v1::GenerateResponse* response) override;
  void LimitWrite() override;
  void EndCall(const v1::GenerateResponse* response, const absl::Status& status) override;

  // gRPC calls these.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override {
    canceller_.OnDone();
    environment_->answers.End(answer_id_);
    self_.reset();
  }

 private:
  StreamCall(RequestEnvironment* environment, RpcMethod method, grpc::CallbackServerContext* context);

  // Finds out who calls, and lets a thread begin with the request, or ends the call.
  void OnRequest(const grpc::ByteBuffer& bytes) override;
  // Makes request_ of the message and submits it, or ends the call.
  template <typename Request>
  void Begin(const grpc::ByteBuffer& bytes);
  // Submits request_.
  void Start();

  // A call without a request does not count as a call of Generate, so that it does not count as an error of the
  // service.
  void OnNoRequest(const absl::Status& status) override { Finish(ToGrpcStatus(status, context())); }

  // Sets write_, and tells the watch of answers.
  void SetWrite(const v1::GenerateResponse& response);

  // Called before the first response, and not for a call without responses: gRPC itself may retry a call only as long
  // as nothing was sent, initial metadata included.
  void AddInitialMetadata();

  RequestEnvironment* const environment_;
  const RpcMethod method_;
  CallCanceller canceller_;
  std::optional<Caller> caller_;                   // Set before the request is parsed.
  std::unique_ptr<ClientRequest> request_;         // Null until the request has been parsed.
  std::atomic<ClientRequest*> started_ = nullptr;  // The same, for OnCancel.
  std::shared_ptr<StreamCall> self_;               // Set until OnDone.

  bool has_initial_metadata_ = false;     // Used by the write under way.
  std::atomic<bool> is_limited_ = false;  // The alarm is set.
  grpc::Alarm write_alarm_;
  grpc::ByteBuffer write_;  // The response that is being written.
  uint64_t answer_id_ = 0;  // Id of the answer in the watch, unless it is small.

  Mutex mutex_;
  bool is_writing_ QUIRE_GUARDED_BY(mutex_) = false;
  // The end of a call whose write is under way: it follows the write.
  std::optional<grpc::Status> end_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_STREAM_CALL_H_
