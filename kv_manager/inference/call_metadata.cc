// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/inference/call_metadata.h"

#include <chrono>
#include <limits>

namespace quire {

std::optional<TraceParent> TraceParentOf(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTraceparentKey);
  if (found == metadata.end() || metadata.count(kTraceparentKey) > 1) return std::nullopt;
  return ParseTraceparent({found->second.data(), found->second.size()});
}

int64_t DeadlineMicros(const grpc::ServerContextBase& context, const Clock& clock) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::numeric_limits<int64_t>::max();
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - std::chrono::system_clock::now());
  return clock.NowMicros() + left.count();
}

}  // namespace quire
