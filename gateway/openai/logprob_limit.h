// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_LOGPROB_LIMIT_H_
#define QUIRE_GATEWAY_OPENAI_LOGPROB_LIMIT_H_

#include <cstdint>

#include "gateway/openai/api_error.h"
#include "gateway/openai/generate_call.h"

// A request of some bytes can ask for an answer with millions of logprobs, which the gateway holds until the client has
// read it. So their number has a limit. Logprobs of the tokens of a stream do not count, because they are sent at once.

namespace quire {

// Returns how many logprobs the answer will have, as far as the call says it. Of a prompt that is a text, only one
// token is known, and max_tokens counts only if it is set. The context has `max_context_tokens`.
uint64_t ExpectedLogprobs(const GenerateCall& call, uint32_t max_context_tokens);

// Returns for a chat without max_tokens how many tokens it may generate: `room`, or fewer if their logprobs would be
// more than `limit`, but at least one.
uint32_t RoomForLogprobs(const GenerateCall& call, uint32_t room, uint64_t limit);

// The error for an answer that has, or would have, more logprobs than `limit`.
ApiError TooManyLogprobs(const GenerateCall& call, uint64_t num_logprobs, uint64_t limit);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_LOGPROB_LIMIT_H_
