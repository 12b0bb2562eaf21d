// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_RPC_MESSAGE_PARTS_H_
#define QUIRE_KV_MANAGER_RPC_MESSAGE_PARTS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/message.h>

namespace quire {

// The parts of an encoded message are the messages, strings, byte strings and map entries in it, and the fields that
// its type does not know. A part may take two bytes on the wire, but takes about a hundred when the message is parsed,
// so their number must be limited before.
//
// Returns whether a message of this type has more than `limit` parts. Reads no further than to the first part beyond
// the limit, or to the place where the encoding breaks.
bool HasMoreParts(const google::protobuf::Descriptor& type, google::protobuf::io::ZeroCopyInputStream* encoded,
                  int limit);

// Reads the integers that the message has itself, not the integers of messages in it, and no lists of integers. From
// them a batch learns to which request a message belongs that it cannot read.
void ReadIntegers(google::protobuf::io::ZeroCopyInputStream* encoded, google::protobuf::Message* message);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_MESSAGE_PARTS_H_
