// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/outbox_limit.h"

#include <algorithm>

#include "kv_manager/requests/stream_record.h"

namespace quire {

size_t OutboxLimit(size_t max_sample_tokens, const Request& request) {
  const size_t token_bytes = sizeof(StreamEvents::SampleToken) +
                             static_cast<size_t>(std::max(request.sampling.num_logprobs, 0)) * sizeof(TokenLogprob);
  const size_t num_affordable = kMaxOutboxBytes / token_bytes;
  return std::max(max_sample_tokens,
                  std::min(max_sample_tokens * static_cast<size_t>(NumOutputs(request)), num_affordable));
}

}  // namespace quire
