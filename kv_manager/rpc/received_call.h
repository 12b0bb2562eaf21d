// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_RPC_RECEIVED_CALL_H_
#define QUIRE_KV_MANAGER_RPC_RECEIVED_CALL_H_

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "kv_manager/rpc/answer_watch.h"
#include "kv_manager/rpc/call_canceller.h"
#include "kv_manager/rpc/receive_watch.h"

namespace quire {

// Returns what ReceiveWatch::End wants to know after OnReadDone(ok): the size of the message, or nothing without one.
std::optional<int64_t> ReceivedBytes(bool ok, const grpc::ByteBuffer& message);

// A call with one request, of which a ReceiveWatch knows while the request is being received.
//
// gRPC starts the handler of a unary method when the request has arrived completely, and nothing in its API can end the
// call before. It starts the handler of a bidirectional stream as soon as the call begins. The kinds of calls do not
// differ on the wire. So all calls are bidirectional streams for gRPC, and this class reads the one request.
class ReceivedCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Both are borrowed.
  ReceivedCall(ReceiveWatch* watch, grpc::CallbackServerContext* context) : watch_(watch), context_(context) {}

  // Begins to read the request. The handler of the method calls this before it returns.
  void Receive();

  // gRPC calls it.
  void OnReadDone(bool ok) final;

  grpc::CallbackServerContext* context() const { return context_; }

 protected:
  // Exactly one of the two is called, once. OnNoRequest must end the call with this status.
  virtual void OnRequest(const grpc::ByteBuffer& request) = 0;
  virtual void OnNoRequest(const absl::Status& status) = 0;

 private:
  ReceiveWatch* const watch_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer request_;
  uint64_t id_ = 0;  // Id of the request in the watch.
};

// A call with one request and one response. It owns itself until gRPC is done with it, which is after Finish.
class UnaryCall final : public ReceivedCall {
 public:
  // Handles the request and ends the call, now or later, on any thread. If `received` is not OK, there is no request,
  // and the call must end with this status.
  using Handler = std::function<void(UnaryCall* call, const absl::Status& received, const grpc::ByteBuffer& request)>;

  UnaryCall(ReceiveWatch* watch, AnswerWatch* answers, grpc::CallbackServerContext* context, const Handler* handler)
      : ReceivedCall(watch, context),
        answers_(answers),
        canceller_(std::make_shared<CallCanceller>(context)),
        handler_(*handler) {}

  // `on_cancel` is called when the client has left, on a thread of gRPC, and at once if it has left before. It is not
  // called after the call has ended. Call this at most once, before the call ends.
  void SetOnCancel(std::function<void()> on_cancel);

  // End the call: with an error, or with a response. One of them is called, once, and the call must not be used
  // afterwards.
  void FinishWithError(const absl::Status& status);
  void FinishWith(const google::protobuf::Message& response);

  // gRPC calls these.
  void OnCancel() override;
  void OnDone() override;

 private:
  void OnRequest(const grpc::ByteBuffer& request) override { handler_(this, absl::OkStatus(), request); }
  void OnNoRequest(const absl::Status& status) override { handler_(this, status, grpc::ByteBuffer()); }

  AnswerWatch* const answers_;
  const std::shared_ptr<CallCanceller> canceller_;  // Shared with the watch.
  const Handler& handler_;
  Mutex mutex_;
  std::function<void()> on_cancel_ QUIRE_GUARDED_BY(mutex_);
  bool is_cancelled_ QUIRE_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer response_;
  uint64_t answer_id_ = 0;  // Id of the response in the watch, unless it is small.
};

// A gRPC service that registers all its methods as bidirectional streams, see ReceivedCall. A derived class adds the
// methods in its constructor.
class ReceivingService : public grpc::Service {
 public:
  // Calls of all methods end at once with the error that `gate` returns; they continue if it is OK. `gate` may be
  // called by several threads. Call this before the server starts.
  void SetGate(std::function<absl::Status()> gate) { gate_ = std::move(gate); }

 protected:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // `full_name` is the name of the service, and the watches are borrowed.
  ReceivingService(absl::string_view full_name, ReceiveWatch* watch, AnswerWatch* answers)
      : full_name_(full_name), watch_(watch), answers_(answers) {}

  void AddUnary(absl::string_view method, UnaryCall::Handler handler);
  // `start` makes the reactor of a call and calls its Receive, if it has one.
  void AddStream(absl::string_view method, std::function<Reactor*(grpc::CallbackServerContext*)> start);

  ReceiveWatch* watch() const { return watch_; }

 private:
  const std::string full_name_;
  ReceiveWatch* const watch_;
  AnswerWatch* const answers_;
  std::function<absl::Status()> gate_ = [] { return absl::OkStatus(); };
  int num_methods_ = 0;
  // gRPC keeps pointers to the names.
  std::deque<std::string> names_;
  std::deque<UnaryCall::Handler> handlers_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_RECEIVED_CALL_H_
