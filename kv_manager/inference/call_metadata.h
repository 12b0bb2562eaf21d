// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_INFERENCE_CALL_METADATA_H_
#define QUIRE_KV_MANAGER_INFERENCE_CALL_METADATA_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/trace_context.h"

namespace quire {

// The metadata key of W3C Trace Context.
inline constexpr char kTraceparentKey[] = "traceparent";

// The trace context that the client has sent. Returns nothing when there is none, or several, or a malformed one.
std::optional<TraceParent> TraceParentOf(const grpc::ServerContextBase& context);

// The deadline of the call, which gRPC keeps in wall-clock time, in microseconds of `clock`. The largest integer when
// the call has no deadline.
int64_t DeadlineMicros(const grpc::ServerContextBase& context, const Clock& clock);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_CALL_METADATA_H_
