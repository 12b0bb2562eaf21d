// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_OUTBOX_LIMIT_H_
#define QUIRE_KV_MANAGER_REQUESTS_OUTBOX_LIMIT_H_

#include <cstddef>

#include "scheduler/request.h"

namespace quire {

// Unless --max-outbox-tokens alone is more, the outbox of a stream takes at most about this much memory.
inline constexpr size_t kMaxOutboxBytes = size_t{16} << 20;

// Returns how many tokens of the request, of all samples together, may wait for a slow reader:
//
//   max(max_sample_tokens, min(max_sample_tokens * samples, kMaxOutboxBytes / bytes of a token))
//
// A step brings a token of each sample, so a reader has the same time for a request with many samples as for one with a
// single sample. A token takes 48 bytes and 8 more for each of its top logprobs.
size_t OutboxLimit(size_t max_sample_tokens, const Request& request);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_OUTBOX_LIMIT_H_
