// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/grpc_status.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status wire = ToRpcStatus(status);
  return grpc::Status(static_cast<grpc::StatusCode>(wire.code()), wire.message(), wire.SerializeAsString());
}

grpc::Status ToGrpcStatus(const absl::Status& status, grpc::ServerContextBase* context) {
  if (const std::optional<int64_t> delay_ms = RetryDelayMs(status); delay_ms.has_value()) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(*delay_ms));
  }
  return ToGrpcStatus(status);
}

}  // namespace quire
