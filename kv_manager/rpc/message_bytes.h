// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_RPC_MESSAGE_BYTES_H_
#define QUIRE_KV_MANAGER_RPC_MESSAGE_BYTES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace quire {

// Convert between messages and the bytes of the wire. gRPC could do this itself, but it answers a request that it
// cannot read with an empty UNIMPLEMENTED.

// A message with more parts than this is refused. Parsed, this number of parts takes about 30 MB.
inline constexpr int kMaxMessageParts = 1 << 18;

// INVALID_ARGUMENT when the bytes are not such a message, or have too many parts (see message_parts.h): with a
// BadRequest for the first string that is not UTF-8, or with the name of the message. Field paths begin at the message,
// or at its field `root`. After an error, `message` has the fields that were read before it.
absl::Status FromBytes(const grpc::ByteBuffer& bytes, google::protobuf::Message* message, absl::string_view root = "");

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_MESSAGE_BYTES_H_
