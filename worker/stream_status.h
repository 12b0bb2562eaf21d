// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_STREAM_STATUS_H_
#define QUIRE_WORKER_STREAM_STATUS_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"

namespace quire {

// The status with which a stream of the worker ends, as gRPC sends it: the same code, and a text of at most 512
// printable ASCII bytes. A reason (base/status_reason.h) becomes an ErrorInfo in the details, unless they would have
// more than 4 KiB. A pure function.
grpc::Status ToStreamStatus(const absl::Status& status);

}  // namespace quire

#endif  // QUIRE_WORKER_STREAM_STATUS_H_
