// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_RPC_GRPC_STATUS_H_
#define QUIRE_KV_MANAGER_RPC_GRPC_STATUS_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"

namespace quire {

// The status that gRPC sends, with the serialized message of ToRpcStatus (rpc_status.h) as its details. OK stays OK.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The same. It also tells gRPC's own retries when to try again, by the trailer grpc-retry-pushback-ms of the call.
grpc::Status ToGrpcStatus(const absl::Status& status, grpc::ServerContextBase* context);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_GRPC_STATUS_H_
