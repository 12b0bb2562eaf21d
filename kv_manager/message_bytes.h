#ifndef QUIRE_KV_MANAGER_MESSAGE_BYTES_H_
#define QUIRE_KV_MANAGER_MESSAGE_BYTES_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace quire {

// Messages as they are on the wire. gRPC could do this itself, but answers a request that it cannot read with an empty
// UNIMPLEMENTED.

// INVALID_ARGUMENT when the bytes are no such message: with a BadRequest for the first string that is not UTF-8, else
// with the name of the message.
absl::Status FromBytes(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_MESSAGE_BYTES_H_
