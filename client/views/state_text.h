// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_VIEWS_STATE_TEXT_H_
#define QUIRE_CLIENT_VIEWS_STATE_TEXT_H_

#include <cstdint>
#include <string>

#include "quire/v1/admin.pb.h"
#include "quire/v1/inspect.pb.h"

namespace quire {

// "running", "swapped", "waiting" or "unknown", as the commands requests and tree print it.
const char* StateOf(v1::RequestState state);

// The age of a request for people: "1.2s" below ten seconds, else whole seconds.
std::string DescribeAge(uint64_t age_ms);

// "connecting", "refused", "draining" or "ready", as status and top say it.
const char* StateOf(const v1::WorkerStatus& worker);

// A line for each rank of the worker, with its address and state, and its device or the reason why it is not ready.
// Empty for a worker with a whole model.
std::string RankLines(const v1::WorkerStatus& worker);

// The width of a column for the workers' addresses. The longest address fits, and so does a usual host:port.
int AddressWidth(const v1::GetStatusResponse& status);

}  // namespace quire

#endif  // QUIRE_CLIENT_VIEWS_STATE_TEXT_H_
