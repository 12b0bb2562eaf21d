// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_MANAGER_LINK_MESSAGE_LIMIT_H_
#define QUIRE_GATEWAY_MANAGER_LINK_MESSAGE_LIMIT_H_

#include <cstddef>

#include "google/protobuf/message.h"
#include "google/rpc/status.pb.h"

namespace quire {

// Returns INVALID_ARGUMENT when `message` has more than `max_bytes` bytes. The status has a BadRequest with the path of
// the field that takes most of them. Otherwise its code is 0 (OK).
google::rpc::Status CheckMessageBytes(const google::protobuf::Message& message, size_t max_bytes);

}  // namespace quire

#endif  // QUIRE_GATEWAY_MANAGER_LINK_MESSAGE_LIMIT_H_
