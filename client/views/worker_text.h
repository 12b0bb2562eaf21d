// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_VIEWS_WORKER_TEXT_H_
#define QUIRE_CLIENT_VIEWS_WORKER_TEXT_H_

#include <string>

#include "quire/v1/admin.pb.h"

namespace quire {

// "connecting", "refused", "draining" or "ready", as status and top say it.
const char* StateOf(const v1::WorkerStatus& worker);

// A line for each rank of the worker, with its address and state, and its device or the reason why it is not ready.
// Empty for a worker with a whole model.
std::string RankLines(const v1::WorkerStatus& worker);

// The width of a column for the workers' addresses. The longest address fits, and so does a usual host:port.
int AddressWidth(const v1::GetStatusResponse& status);

}  // namespace quire

#endif  // QUIRE_CLIENT_VIEWS_WORKER_TEXT_H_
