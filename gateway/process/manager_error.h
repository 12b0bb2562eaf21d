// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_MANAGER_ERROR_H_
#define QUIRE_GATEWAY_PROCESS_MANAGER_ERROR_H_

#include "gateway/openai/api_error.h"
#include "google/rpc/status.pb.h"

namespace quire {

// Converts the status of a call of the manager, as ToApiError does. When the connection has failed, the log gets gRPC's
// reason, which has the manager's address; at most one line per second. Thread-safe.
ApiError ManagerError(const google::rpc::Status& status, const ApiNames& names = {});

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_MANAGER_ERROR_H_
