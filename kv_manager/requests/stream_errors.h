// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_STREAM_ERRORS_H_
#define QUIRE_KV_MANAGER_REQUESTS_STREAM_ERRORS_H_

#include <cstddef>

#include "absl/status/status.h"

namespace quire {

// The error of a call for a stream that is not kept.
absl::Status UnknownRequestError();
// The error of a call that has lost its stream to another one.
absl::Status TakenOverError();
// The error of a request whose stream cannot be kept, because the memory for such streams is used up.
absl::Status NoReplayMemoryError();
// The error of a call whose client lets `num_waiting` tokens wait. `ends_request`: the stream ends with the call.
// Otherwise it may be kept for another call; that is not certain, and not every client has a resume token.
absl::Status SlowReaderError(size_t num_waiting, size_t limit, bool ends_request);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_STREAM_ERRORS_H_
