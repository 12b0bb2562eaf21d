// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_ADMIN_CALL_H_
#define QUIRE_KV_MANAGER_ADMIN_ADMIN_CALL_H_

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kv_manager/rpc/received_call.h"

// Helpers of all calls of AdminService: they read the request and end the call.

namespace quire {

// A unary call that has not been answered yet. A handle that may be copied; Finish is called once, on any thread, and
// the call must not be used afterwards.
struct AdminCall {
  UnaryCall* call;

  grpc::CallbackServerContext* context() const { return call->context(); }
  // Ends the call with an error, or with `message` as its response.
  void Finish(const absl::Status& status) const { call->FinishWithError(status); }
  void Finish(const google::protobuf::Message& message) const { call->FinishWith(message); }
};

// INVALID_ARGUMENT when the bytes are no such message, or have fields that this server does not know.
absl::Status ReadRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message* request);

// INVALID_ARGUMENT that names one field.
absl::Status FieldStatus(const char* field, std::string description);
// INVALID_ARGUMENT unless `least` <= `value` <= `most`.
absl::Status CheckRange(const char* field, uint32_t value, uint32_t least, uint32_t most);

// The handler of a unary call that gives the request to a method of `calls`, which is borrowed and ends the call now or
// later. A request that cannot be read ends the call here.
template <typename Calls, typename Request>
UnaryCall::Handler HandlerOf(Calls* calls, void (Calls::*start)(const Request&, const AdminCall&)) {
  return [calls, start](UnaryCall* unary, const absl::Status& received, const grpc::ByteBuffer& bytes) {
    const AdminCall call{unary};
    Request request;
    const absl::Status status = received.ok() ? ReadRequest(bytes, &request) : received;
    status.ok() ? (calls->*start)(request, call) : call.Finish(status);
  };
}

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_ADMIN_CALL_H_
