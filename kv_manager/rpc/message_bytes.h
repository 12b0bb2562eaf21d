#ifndef QUIRE_KV_MANAGER_RPC_MESSAGE_BYTES_H_
#define QUIRE_KV_MANAGER_RPC_MESSAGE_BYTES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace quire {

// Messages as they are on the wire. gRPC could do this itself, but answers a request that it cannot read with an empty
// UNIMPLEMENTED.

// INVALID_ARGUMENT when the bytes are no such message: with a BadRequest for the first string that is not UTF-8, else
// with the name of the message. Field paths begin at the message, or in its field `root`. `message` has what could be
// read, in the order of the bytes.
absl::Status FromBytes(const grpc::ByteBuffer& bytes, google::protobuf::Message* message, absl::string_view root = "");

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_MESSAGE_BYTES_H_
