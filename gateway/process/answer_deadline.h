// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_ANSWER_DEADLINE_H_
#define QUIRE_GATEWAY_PROCESS_ANSWER_DEADLINE_H_

#include <chrono>
#include <variant>

#include "gateway/openai/api_error.h"
#include "gateway/web/web_server.h"

namespace quire {

// Returns the time at which the answer is of no use any more, or time_point::max() if there is none. `limit` is the
// --request-timeout, or 0. The header X-Request-Timeout has the seconds that the client gives the whole answer.
// OpenAI's clients send X-Stainless-Read-Timeout (Python) or X-Stainless-Timeout (JavaScript): how many seconds they
// wait for the next bytes. An answer that is no stream comes in one piece, so it has this time, less a fiftieth of it
// (at least 0.1 s and at most 1 s), so that the client learns from the server why there is no answer; for a stream it
// says nothing about the end. Such a header that is no number of seconds is ignored, because users do not write it.
std::variant<std::chrono::steady_clock::time_point, ApiError> AnswerDeadline(const WebRequest& request, bool streams,
                                                                             std::chrono::milliseconds limit,
                                                                             std::chrono::steady_clock::time_point now);

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_ANSWER_DEADLINE_H_
