// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_DETACHED_COUNTS_H_
#define QUIRE_KV_MANAGER_REQUESTS_DETACHED_COUNTS_H_

#include <cstdint>

namespace quire {

// The counts of ResumableRequests at one moment.
struct DetachedCounts {
  int64_t running = 0;       // Requests that run or wait without a client.
  int64_t ended = 0;         // Requests that have ended and whose stream can still be resumed.
  int64_t replay_bytes = 0;  // Memory of all streams that can be resumed.
  int64_t resumed = 0;       // Streams that another call has taken over. This and what follows only grow.
  int64_t expired = 0;       // Running requests that ended because their clients did not come back in time.
  int64_t displaced = 0;     // Running requests that ended because there were too many without clients.
  int64_t forgotten = 0;     // Streams that cannot be resumed any more, because there was no memory for them.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_DETACHED_COUNTS_H_
