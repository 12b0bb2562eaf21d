// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_UNKNOWN_FIELDS_H_
#define QUIRE_KV_MANAGER_REQUESTS_UNKNOWN_FIELDS_H_

#include <string>

#include "google/protobuf/message.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {

// Adds every unknown field of `message` and of the messages in it to `errors`, under `path`: fields of a newer client
// must not be ignored silently.
void CheckUnknownFields(const google::protobuf::Message& message, const std::string& path, FieldErrors* errors);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_UNKNOWN_FIELDS_H_
