// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_START_CHECK_H_
#define QUIRE_WORKER_START_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "quire/v1/worker.pb.h"
#include "worker/worker_limits.h"

namespace quire {

// Checks that a row can hold this sequence: that token ids are inside the vocabulary, that lengths agree, and that
// sampling parameters are in their ranges. Otherwise returns INVALID_ARGUMENT with the field below `path`, its value
// and the limit.
absl::Status CheckSequenceStart(const v1::SequenceStart& start, const WorkerLimits& limits, absl::string_view path);

}  // namespace quire

#endif  // QUIRE_WORKER_START_CHECK_H_
