// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/admin_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kv_manager/requests/unknown_fields.h"
#include "kv_manager/rpc/message_bytes.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {

absl::Status ReadRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message* request) {
  if (absl::Status status = FromBytes(bytes, request); !status.ok()) return status;
  FieldErrors errors;
  CheckUnknownFields(*request, "", &errors);
  return errors.empty() ? absl::OkStatus() : errors.ToStatus();
}

absl::Status FieldStatus(const char* field, std::string description) {
  FieldErrors errors;
  errors.Add(field, std::move(description));
  return errors.ToStatus();
}

absl::Status CheckRange(const char* field, uint32_t value, uint32_t least, uint32_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return FieldStatus(field, absl::StrCat("is ", value, ", must be ", least, " .. ", most));
}

}  // namespace quire
