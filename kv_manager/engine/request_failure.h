// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_REQUEST_FAILURE_H_
#define QUIRE_KV_MANAGER_ENGINE_REQUEST_FAILURE_H_

#include "absl/status/status.h"
#include "scheduler/step_output.h"

namespace quire {

// Returns the error that the client gets when the worker has ended a sequence of its request.
absl::Status ErrorOf(const FailedRequest& failed);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_REQUEST_FAILURE_H_
