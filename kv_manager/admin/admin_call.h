#ifndef QUIRE_KV_MANAGER_ADMIN_ADMIN_CALL_H_
#define QUIRE_KV_MANAGER_ADMIN_ADMIN_CALL_H_

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

// Helpers of all calls of AdminService: they read the request and end the call.

namespace quire {

// A unary call that has not been answered yet. A handle that may be copied; Finish is called once, on any thread, and
// the call must not be used afterwards.
struct AdminCall {
  grpc::CallbackServerContext* context;
  grpc::ServerUnaryReactor* reactor;
  grpc::ByteBuffer* response;

  // Ends the call with an error, or with `message` as its response.
  void Finish(const absl::Status& status) const;
  void Finish(const google::protobuf::Message& message) const;
};

// INVALID_ARGUMENT when the bytes are no such message, or have fields that this server does not know.
absl::Status ReadRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message* request);

// INVALID_ARGUMENT that names one field.
absl::Status FieldStatus(const char* field, std::string description);
// INVALID_ARGUMENT unless `least` <= `value` <= `most`.
absl::Status CheckRange(const char* field, uint32_t value, uint32_t least, uint32_t most);

// Reads a unary request and gives it to a method of `calls`, which ends the call now or later. A request that cannot be
// read ends the call here.
template <typename Calls, typename Request>
grpc::ServerUnaryReactor* StartCall(grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes,
                                    grpc::ByteBuffer* response, Calls* calls,
                                    void (Calls::*start)(const Request&, const AdminCall&)) {
  const AdminCall call{context, context->DefaultReactor(), response};
  Request request;
  const absl::Status status = ReadRequest(bytes, &request);
  status.ok() ? (calls->*start)(request, call) : call.Finish(status);
  return call.reactor;
}

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_ADMIN_CALL_H_
